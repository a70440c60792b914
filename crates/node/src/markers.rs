//! Predicted motion as arrows, for RViz and Foxglove.

use r2r::builtin_interfaces::msg::Duration;
use r2r::geometry_msgs::msg::{Point, Pose, Quaternion, Vector3};
use r2r::std_msgs::msg::{ColorRGBA, Header};
use r2r::visualization_msgs::msg::{Marker, MarkerArray};

use super::object_messages;
use forecloud::base::geometry::distance;
use forecloud::predict::objects::Object;
use forecloud::predict::predictor::Prediction;

/// Arrows of one message at most; of more particles that move, evenly many are left out.
pub const MAX_ARROWS: usize = 500;
/// Steps of the model for which an arrow is shown, if no newer one takes its place.
const LIFETIME_STEPS: f64 = 2.0;
/// Motion that is shown in full red, as a multiple of the least one that is shown.
const FULL_RED: f32 = 10.0;
/// Diameter of an arrow's shaft, and of its head (m).
const DIAMETERS_M: [f64; 2] = [0.003, 0.008];
/// Length of the head as a share of the arrow's.
const HEAD: f64 = 0.3;

/// Arrows from where each particle is to where it will be after the last step.
///
/// Only of particles that move by `min_m` or more. Particles lie along a space-filling curve, so
/// those that are left out of too many are so evenly in space. An arrow's `id` is its place in the
/// message, from 0: each message replaces the last one, and what it doesn't is gone after two steps.
pub fn motion(prediction: &Prediction, header: &Header, min_m: f32, step_secs: f64) -> MarkerArray {
    let moving = moving(prediction, min_m);
    let shown = moving.len().min(MAX_ARROWS);
    let lifetime = lifetime(LIFETIME_STEPS * step_secs);
    let markers = (0..shown).map(|i| {
        let (from, to) = moving[i * moving.len() / shown];
        arrow(i as i32, [from, to], header, min_m, lifetime.clone())
    });
    MarkerArray { markers: markers.collect() }
}

/// A box about each object, its number above it, and the way that it will go. All have the colour of its number.
pub fn objects(objects: &[Object], header: &Header, step_secs: f64) -> MarkerArray {
    let lifetime = lifetime(LIFETIME_STEPS * step_secs);
    let markers = objects.iter().filter_map(|object| Some((object, object.path.first()?)));
    let markers = markers.flat_map(|(object, first)| {
        let number = object.followed.number;
        // A hue for each: neighbouring numbers differ most by the golden ratio.
        let hue = (number as f64 * 0.618_034).fract() as f32;
        let channel =
            |shift: f32| (6.0 * ((hue + shift).fract() - 0.5).abs() - 1.0).clamp(0.0, 1.0);
        let color =
            |a: f32| ColorRGBA { r: channel(0.0), g: channel(2.0 / 3.0), b: channel(1.0 / 3.0), a };
        let marker = |ns: &str, type_: u8| Marker {
            header: header.clone(),
            ns: ns.into(),
            // Unique as long as numbers are below 2³¹; those beyond share markers with old ones.
            id: (number & 0x7fff_ffff) as i32,
            type_: i32::from(type_),
            action: i32::from(Marker::ADD as u8),
            lifetime: lifetime.clone(),
            pose: object_messages::pose(first),
            ..Marker::default()
        };
        let mut text = marker("numbers", Marker::TEXT_VIEW_FACING as u8);
        text.pose.position.z += 0.5 * f64::from(object.size[2]) + 0.02;
        let upright = || Pose {
            orientation: Quaternion { w: 1.0, ..Quaternion::default() },
            ..Pose::default()
        };
        [
            Marker {
                scale: object_messages::size(object),
                color: color(0.35),
                ..marker("boxes", Marker::CUBE as u8)
            },
            Marker {
                text: number.to_string(),
                scale: Vector3 { z: 0.03, ..Vector3::default() },
                color: color(1.0),
                ..text
            },
            Marker {
                pose: upright(),
                points: object.path.iter().map(|at| object_messages::pose(at).position).collect(),
                scale: Vector3 { x: 0.005, ..Vector3::default() },
                color: color(1.0),
                ..marker("paths", Marker::LINE_STRIP as u8)
            },
        ]
    });
    MarkerArray { markers: markers.collect() }
}

/// Where the particles that move are, and where they will be (m).
fn moving(prediction: &Prediction, min_m: f32) -> Vec<([f32; 3], [f32; 3])> {
    let positions = prediction.particles.positions.iter().enumerate();
    let ends = positions.map(|(i, from)| {
        let mut to = *from;
        for step in &prediction.displacements {
            to.iter_mut().zip(step[i]).for_each(|(x, dx)| *x += dx);
        }
        (*from, to)
    });
    ends.filter(|(from, to)| distance(from, to) >= min_m.max(f32::MIN_POSITIVE)).collect()
}

fn arrow(id: i32, ends: [[f32; 3]; 2], header: &Header, min_m: f32, lifetime: Duration) -> Marker {
    let length_m = distance(&ends[0], &ends[1]);
    let [x, y] = DIAMETERS_M;
    let point = |[x, y, z]: [f32; 3]| Point { x: f64::from(x), y: f64::from(y), z: f64::from(z) };
    Marker {
        header: header.clone(),
        ns: "motion".into(),
        id,
        type_: Marker::ARROW as i32,
        action: Marker::ADD as i32,
        scale: Vector3 { x, y, z: HEAD * f64::from(length_m) },
        color: color(length_m, min_m),
        lifetime,
        points: ends.map(point).to_vec(),
        pose: Pose {
            orientation: Quaternion { w: 1.0, ..Quaternion::default() },
            ..Pose::default()
        },
        ..Marker::default()
    }
}

/// From blue (`min_m`) over green to red (ten times that, and more).
fn color(length_m: f32, min_m: f32) -> ColorRGBA {
    let full_m = FULL_RED * min_m.max(1e-3);
    let share = ((length_m - min_m) / (full_m - min_m)).clamp(0.0, 1.0);
    let channel = |at: f32| (1.0 - 2.0 * (share - at).abs()).max(0.0);
    ColorRGBA { r: channel(1.0), g: channel(0.5), b: channel(0.0), a: 1.0 }
}

fn lifetime(secs: f64) -> Duration {
    let nanos = (secs.max(0.0) * 1e9).round() as u64;
    let sec = i32::try_from(nanos / 1_000_000_000).unwrap_or(i32::MAX);
    Duration { sec, nanosec: (nanos % 1_000_000_000) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Particles that go their way in x in two halves.
    fn prediction(motion_m: &[f32]) -> Prediction {
        let mut prediction = Prediction::default();
        let halves: Vec<_> = motion_m.iter().map(|m| [0.5 * m, 0.0, 0.0]).collect();
        prediction.displacements = vec![halves.clone(), halves];
        prediction.particles.positions =
            (0..motion_m.len()).map(|i| [0.0, i as f32, 2.0]).collect();
        prediction
    }

    fn arrows(motion_m: &[f32]) -> Vec<Marker> {
        let header = Header { frame_id: "world".into(), ..Header::default() };
        motion(&prediction(motion_m), &header, 0.01, 0.1).markers
    }

    #[test]
    fn arrows_lead_to_where_moving_particles_will_be() {
        let arrows = arrows(&[0.0, 0.1, 0.009, 0.02, f32::NAN]);
        assert_eq!(arrows.iter().map(|arrow| arrow.id).collect::<Vec<_>>(), [0, 1]);
        let ends: Vec<_> =
            arrows[0].points.iter().map(|p| [p.x, p.y, p.z].map(|x| x as f32)).collect();
        assert_eq!(ends, [[0.0, 1.0, 2.0], [0.1, 1.0, 2.0]]);
        assert_eq!(arrows[1].points[1].y, 3.0);
        for arrow in &arrows {
            assert_eq!((arrow.ns.as_str(), arrow.header.frame_id.as_str()), ("motion", "world"));
            assert_eq!((arrow.lifetime.sec, arrow.lifetime.nanosec), (0, 200_000_000));
            assert_eq!(arrow.pose.orientation.w, 1.0);
        }
        assert!((arrows[0].scale.z - 0.03).abs() < 1e-6);
    }

    #[test]
    fn color_goes_from_blue_to_red_with_the_length() {
        let rgb = |length_m| {
            let ColorRGBA { r, g, b, a } = color(length_m, 0.01);
            assert_eq!(a, 1.0);
            [r, g, b].map(|channel| (channel * 100.0).round() as i32)
        };
        assert_eq!(rgb(0.01), [0, 0, 100]);
        assert_eq!(rgb(0.055), [0, 100, 0]);
        assert_eq!((rgb(0.1), rgb(5.0)), ([100, 0, 0], [100, 0, 0]));
        // A threshold of 0 shows all that moves at all.
        let ColorRGBA { r, .. } = color(0.01, 0.0);
        assert!(r > 0.999, "{r}");
    }

    #[test]
    fn of_too_many_arrows_evenly_many_are_left_out() {
        let motion_m: Vec<f32> = (0..1750).map(|i| if i % 7 == 0 { 0.0 } else { 0.1 }).collect();
        let arrows = arrows(&motion_m);
        assert_eq!(arrows.len(), MAX_ARROWS);
        let at: Vec<f64> = arrows.iter().map(|arrow| arrow.points[0].y).collect();
        assert!(at.windows(2).all(|pair| (3.0..=5.0).contains(&(pair[1] - pair[0]))));
        assert!(at[0] < 5.0 && at[499] > 1740.0);
    }
}
