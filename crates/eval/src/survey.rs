//! Where the points of a recording are, and how its frames follow each other: what a user must know
//! where the model's box or step does not fit them.

use nalgebra::Vector3;
use serde::{Deserialize, Serialize};

use forecloud::Result;
use forecloud::base::geometry::Plane;
use forecloud::message::Stamp;
use forecloud::vision::cloud::{Cloud, Workspace};
use forecloud::vision::frames::{Frame, FramesConfig, View};

/// Points that are looked at.
const MAX_POINTS: usize = 20_000;
/// Of the points along each axis, this share lies outside of what counts as where they are.
const OUTLIERS: f32 = 0.02;
/// How near to a plane its points lie (m).
const PLANE_M: f64 = 0.015;
/// Share of the points that makes a plane tell something.
const PLANE_SHARE: f64 = 0.4;
/// Tilts between floors and walls: neither is that askew (degrees).
const ASKEW_DEG: std::ops::Range<f64> = 15.0..75.0;
/// Cosine of the angle to z up to which a camera does not look at the sky.
const SKY: f64 = 0.7;

/// What was found of one recording.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Survey {
    /// Box that was predicted in (world frame, m).
    pub workspace: Workspace,
    /// Points measured in the first frame that has any.
    pub n_measured: usize,
    /// Of those: points in the workspace.
    pub n_in_workspace: usize,
    /// Box in which 96 % of them lie along each axis: lowest and highest (world frame, m).
    pub points: Option<[[f32; 3]; 2]>,
    /// Median time from one frame to the next (s).
    pub frame_secs: Option<f64>,
}

/// Looks at the frames of one recording.
pub struct Surveyor {
    workspace: Workspace,
    world_frame: String,
    cameras: Vec<String>,
    last: Option<Stamp>,
    gaps_ns: Vec<u64>,
    survey: Survey,
    warnings: Vec<String>,
}

impl Surveyor {
    /// Of frames made as `frames` says, cropped to `workspace`.
    pub fn new(workspace: Workspace, frames: &FramesConfig) -> Self {
        let world_frame = frames.world_frame.clone();
        let mut warnings = Vec::new();
        if world_frame.to_ascii_lowercase().contains("optical") {
            warnings.push(format!("{}: an optical frame's z points ahead", not_up(&world_frame)));
        }
        Self {
            workspace,
            world_frame,
            cameras: frames.topics.cameras.iter().map(|camera| camera.name.clone()).collect(),
            last: None,
            gaps_ns: Vec::new(),
            survey: Survey { workspace, ..Survey::default() },
            warnings,
        }
    }

    /// Looks at one more frame.
    ///
    /// # Errors
    /// As [`Cloud::from_cameras`].
    pub fn watch(&mut self, frame: &Frame) -> Result<()> {
        if let Some(last) = self.last.filter(|last| *last < frame.stamp) {
            self.gaps_ns.push(frame.stamp.abs_diff(last));
        }
        self.last = Some(frame.stamp);
        if self.survey.n_measured > 0 {
            return Ok(());
        }
        let mut cloud = Cloud::default();
        cloud.from_cameras(&frame.cameras, &Workspace::EVERYWHERE)?;
        let workspace = self.workspace.in_world(frame.world_from_workspace.as_ref());
        self.survey.workspace = workspace;
        let inside = cloud.positions.iter().filter(|x| workspace.contains(**x));
        self.survey.n_in_workspace = inside.count();
        self.survey.n_measured = cloud.len();
        let every = cloud.len().div_ceil(MAX_POINTS).max(1);
        let points: Vec<[f32; 3]> = cloud.positions.iter().copied().step_by(every).collect();
        self.survey.points = bounds(&points);
        // One reason is enough.
        if self.warnings.is_empty() {
            self.warnings.extend(self.looks_up(frame).or_else(|| self.is_askew(&points)));
        }
        Ok(())
    }

    /// What was found, and what is to be warned of.
    pub fn finish(mut self) -> (Survey, Vec<String>) {
        let middle = self.gaps_ns.len() / 2;
        if !self.gaps_ns.is_empty() {
            let (_, median, _) = self.gaps_ns.select_nth_unstable(middle);
            self.survey.frame_secs = Some(1e-9 * *median as f64);
        }
        (self.survey, self.warnings)
    }

    /// All depth cameras look along z: it points ahead, not up.
    fn looks_up(&self, frame: &Frame) -> Option<String> {
        let cameras = frame.cameras.iter();
        let depth = cameras.filter(|camera| matches!(camera.view, View::Depth { .. }));
        let up = depth
            .map(|camera| (camera.camera, (camera.world_from_camera.rotation * Vector3::z()).z));
        let up: Vec<(usize, f64)> = up.collect();
        let (camera, _) = *up.first()?;
        let name = self.cameras.get(camera).map_or("", String::as_str);
        let all = up.iter().all(|(_, z)| *z > SKY);
        all.then(|| format!("{}: camera '{name}' looks along its z", not_up(&self.world_frame)))
    }

    /// The largest plane in view is neither level nor upright.
    fn is_askew(&self, points: &[[f32; 3]]) -> Option<String> {
        let tilt_deg = largest_plane_tilt_deg(points).filter(|tilt| ASKEW_DEG.contains(tilt))?;
        let world = not_up(&self.world_frame);
        Some(format!("{world}: the largest plane in view is tilted by {tilt_deg:.0} degrees"))
    }
}

fn not_up(world_frame: &str) -> String {
    format!(
        "the world frame '{world_frame}' seems not to have z up, which predictions rely on (name \
         one fixed to the ground with -p world_frame:=FRAME)"
    )
}

/// Lowest and highest coordinates without outliers.
fn bounds(points: &[[f32; 3]]) -> Option<[[f32; 3]; 2]> {
    let last = points.len().checked_sub(1)?;
    let n_out = (OUTLIERS * last as f32) as usize;
    let mut bounds = [[0.0; 3]; 2];
    for axis in 0..3 {
        let mut values: Vec<f32> = points.iter().map(|x| x[axis]).collect();
        values.sort_unstable_by(f32::total_cmp);
        (bounds[0][axis], bounds[1][axis]) = (values[n_out], values[last - n_out]);
    }
    Some(bounds)
}

/// Angle between z and the normal of the plane on which most points lie (degrees, 0 to 90); none
/// where no plane has enough of them.
fn largest_plane_tilt_deg(points: &[[f32; 3]]) -> Option<f64> {
    let plane = Plane::largest(points, |_| PLANE_M, |_| true)?;
    let tilt_deg = plane.normal.z.abs().min(1.0).acos().to_degrees();
    (plane.share >= PLANE_SHARE).then_some(tilt_deg)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::Scene;
    use nalgebra::{Isometry3, UnitQuaternion};

    fn warnings(world_frame: &str, tilt_rad: f64) -> (Survey, Vec<String>) {
        let frames = FramesConfig { world_frame: world_frame.into(), ..FramesConfig::default() };
        let mut surveyor = Surveyor::new(Workspace::default(), &frames);
        for i in 0..5 {
            let mut frame = Scene::default().frame(0.07 * f64::from(i));
            // Looks down at the wall, which lies in front of it, and by so much too little.
            let down = UnitQuaternion::from_euler_angles(std::f64::consts::PI + tilt_rad, 0.0, 0.0);
            frame.cameras[0].world_from_camera =
                Isometry3::from_parts([0.0, 0.0, 1.2].into(), down);
            surveyor.watch(&frame).unwrap();
        }
        surveyor.finish()
    }

    #[test]
    fn a_world_frame_without_z_up_is_told_from_one_with() {
        let told = |frame: &str, tilt_deg: f64| warnings(frame, tilt_deg.to_radians()).1;
        assert_eq!(told("world", 0.0), [""; 0]);
        assert_eq!(told("world", 5.0), [""; 0]);
        assert_eq!(told("world", 90.0), [""; 0], "a wall");
        for (frame, tilt_deg, reason) in [
            ("camera_color_optical_frame", 0.0, "an optical frame's z points ahead"),
            ("camera", 180.0, "looks along its z"),
            ("camera_link", 35.0, "tilted by 35 degrees"),
        ] {
            let told = told(frame, tilt_deg);
            assert!(told.len() == 1 && told[0].contains(reason), "{told:?}");
            assert!(told[0].contains(frame) && told[0].contains("-p world_frame"), "{told:?}");
        }
    }

    #[test]
    fn points_and_rate_are_told() {
        let (survey, _) = warnings("world", 0.0);
        assert_eq!(survey.n_measured, 160 * 120);
        assert!((survey.frame_secs.unwrap() - 0.07).abs() < 1e-6);
        // The wall is 1.2 m below the camera, and wider than the workspace.
        let [min, max] = survey.points.unwrap();
        assert!(min[2].abs() < 0.01 && max[0] > 0.5 && max[0] < 0.8, "{min:?} {max:?}");
        let share = survey.n_in_workspace as f64 / survey.n_measured as f64;
        assert!((0.3..0.95).contains(&share), "{share}");
    }
}
