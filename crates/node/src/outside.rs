//! Where the points are that the workspace leaves out.

use forecloud::vision::cloud::{Cloud, Workspace};
use forecloud::vision::frames::CameraFrame;

/// Share of the points that is left out at either end of an axis: depth images have outliers.
const OUTLIERS: f64 = 0.01;

/// What `cameras` see, in words: how many points, how many of them in the box, and where most are.
pub fn describe(cameras: &[CameraFrame], workspace: &Workspace, world_frame: &str) -> String {
    let mut cloud = Cloud::default();
    if let Err(error) = cloud.from_cameras(cameras, &Workspace::EVERYWHERE) {
        return error.to_string();
    }
    in_words(&mut cloud.positions, workspace, world_frame)
}

fn in_words(points: &mut [[f32; 3]], workspace: &Workspace, world_frame: &str) -> String {
    let Workspace { min, max } = workspace;
    if points.is_empty() {
        return "The cameras give no point at all. Remedy: check that the depth images hold \
                distances"
            .to_owned();
    }
    let n_inside = points.iter().filter(|point| workspace.contains(**point)).count();
    let [low, high] = most(points);
    format!(
        "Of {} points that the cameras see, {n_inside} lie in the workspace {min:.2?} to {max:.2?}; \
         most lie between {low:.2?} and {high:.2?} (m, in '{world_frame}'). Remedy: set \
         workspace_min and workspace_max around what should be predicted, or correct the \
         transforms of the cameras",
        points.len()
    )
}

/// The box of all points but the outliers; `points` must not be empty.
fn most(points: &mut [[f32; 3]]) -> [[f32; 3]; 2] {
    let last = points.len() - 1;
    let n_out = (OUTLIERS * last as f64) as usize;
    let mut at = |axis: usize, rank: usize| {
        points.select_nth_unstable_by(rank, |a, b| a[axis].total_cmp(&b[axis])).1[axis]
    };
    let mut corner = |rank| std::array::from_fn(|axis| at(axis, rank));
    [corner(n_out), corner(last - n_out)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_where_most_points_are() {
        let mut points: Vec<[f32; 3]> =
            (0..1001).map(|i| [2.0 + i as f32 * 1e-3, -1.0, (i % 11) as f32]).collect();
        points[500] = [0.0, 0.0, 0.0];
        points.push([999.0; 3]);
        let text = in_words(&mut points, &Workspace::default(), "map");
        for part in [
            "Of 1002 points",
            "1 lie in the workspace [-0.45, -0.50, -0.01] to [0.55, 0.50, 0.65]",
            "most lie between [2.01, -1.00, 0.00] and [2.99, -1.00, 10.00] (m, in 'map')",
        ] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
    }

    #[test]
    fn few_points_and_none() {
        assert!(in_words(&mut [], &Workspace::default(), "map").contains("no point at all"));
        let text = in_words(&mut [[1.0, 2.0, 3.0]], &Workspace::default(), "map");
        assert!(text.contains("between [1.00, 2.00, 3.00] and [1.00, 2.00, 3.00]"), "{text}");
        assert!(describe(&[], &Workspace::default(), "map").contains("no point at all"));
    }
}
