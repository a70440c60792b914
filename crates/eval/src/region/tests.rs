//! Regions against a scene whose geometry says what moved.

use super::*;
use crate::observed::Eye;
use crate::scene::{Scene, WALL_M, to_world};
use forecloud::robot::kinematics::{MeshSearch, Mount};
use forecloud::vision::cloud::{SensorNoise, Workspace};
use forecloud::vision::frames::{Frame, Joints, RobotState};

const WIDE: Workspace = Workspace { min: [-9.0; 3], max: [9.0; 3] };

fn observed(frame: &Frame) -> Observed {
    Eye::new(WIDE, 512, 0).observe(frame).unwrap()
}

/// Regions of places (optical frame, m) when the box moves by `way`, at the first and the second
/// time: the rule knows no order.
fn regions(way: [f64; 3], places: &[[f64; 3]]) -> Vec<Region> {
    let scene = Scene::default();
    let (a, b) = (observed(&scene.frame(0.0)), observed(&scene.moved(way).frame(0.1)));
    let at: Vec<Vec3> = places.iter().map(|&place| to_world(place)).collect();
    let regions = Change::between(&a, &b).unwrap().regions(&at, &a);
    assert_eq!(regions, Change::between(&b, &a).unwrap().regions(&at, &a));
    regions
}

#[test]
fn the_box_moves_before_and_after_and_the_wall_stays() {
    let [left, new, wall, past] =
        [[-0.2, 0.0, 0.8], [0.1, 0.0, 0.8], [0.4, -0.3, WALL_M], [-0.45, 0.3, WALL_M]];
    let expected = [Region::Moving, Region::Moving, Region::Static, Region::Static];
    assert_eq!(regions([0.3, 0.0, 0.0], &[left, new, wall, past]), expected);
    assert_eq!(regions([0.0; 3], &[left, wall]), [Region::Static; 2]);
    // Towards the camera and away: the face leaves its place either way, but hides it from near.
    assert_eq!(regions([0.0, 0.0, 0.05], &[left]), [Region::Moving]);
    assert_eq!(regions([0.0, 0.0, -0.025], &[left]), [Region::Moving]);
    assert_eq!(regions([0.0, 0.0, -0.05], &[left]), [Region::Hidden]);
}

#[test]
fn what_is_hidden_at_one_time_is_unknown() {
    // The box comes 0.3 m nearer and hides the wall around the place that it did not hide before.
    let scene = Scene::default();
    let nearer = scene.moved([0.0, 0.0, -0.3]);
    let hidden: Vec<[f64; 3]> = [[-0.33, -0.05], [-0.33, 0.0]].map(|[x, y]| [x, y, 1.0]).into();
    for place in &hidden {
        let wall = place.map(|value| value * WALL_M);
        assert!(!scene.cast(place[0], place[1]).1 && nearer.cast(place[0], place[1]).1);
        assert_eq!(regions([0.0, 0.0, -0.3], &[wall]), [Region::Hidden]);
    }
}

#[test]
fn the_middle_of_a_wide_face_that_slides_in_itself_seems_to_rest() {
    // No depth image can tell, and the documentation says so.
    let wide = Scene { min: [-0.3, -0.2, 0.8], max: [0.3, 0.2, 0.9] };
    let (a, b) = (observed(&wide.frame(0.0)), observed(&wide.moved([0.05, 0.0, 0.0]).frame(0.1)));
    let at = [[0.0, 0.0, 0.8], [0.29, 0.0, 0.8]].map(to_world);
    let found = Change::between(&a, &b).unwrap().regions(&at, &a);
    assert_eq!(found, [Region::Static, Region::Moving]);
}

#[test]
fn noise_of_the_sensor_moves_nothing() {
    let scene = Scene::default();
    let noisy = |secs: f64| {
        let mut frame = scene.frame(secs);
        // Of a stereo camera: 5.5 mm at 1.2 m, and gaps and flying pixels at the box's edges.
        SensorNoise { seed: 3, ..SensorNoise::default() }.apply(&mut frame).unwrap();
        frame
    };
    let (a, b) = (observed(&noisy(0.0)), observed(&noisy(0.1)));
    let at: Vec<Vec3> = scene.pixels().iter().step_by(7).map(|seen| seen.point).collect();
    let found = Change::between(&a, &b).unwrap().regions(&at, &a);
    let n_moving = found.iter().filter(|region| **region == Region::Moving).count();
    assert!(n_moving * 100 < found.len(), "{n_moving} of {}", found.len());
    assert!(!found.contains(&Region::Robot));
}

#[test]
fn the_robots_points_are_the_robots() {
    let at = [[-0.2, 0.0, 0.8], [0.4, -0.3, WALL_M]].map(to_world);
    let [x, y, z] = at[0];
    let urdf = format!(
        "<robot name='r'><link name='world'/><link name='arm'><visual><origin xyz='{x} {y} {z}'/>\
         <geometry><sphere radius='0.02'/></geometry></visual></link><joint name='j' \
         type='prismatic'><parent link='world'/><child link='arm'/><axis xyz='1 0 0'/><limit \
         lower='-1' upper='1' effort='1' velocity='1'/></joint></robot>"
    );
    let named = |name: &str, position: f64| {
        let mut frame = Scene::default().frame(0.0);
        let joints = Joints { names: [name.to_owned()].into(), positions: vec![position] };
        frame.robot = Some(RobotState { joints, mount: Mount::default() });
        frame
    };
    let joint = |position: f64| named("j", position);
    let mut eye = Eye::new(WIDE, 512, 0);
    eye.set_robot(&urdf, "world", &MeshSearch::default());
    assert_eq!(eye.without_robot, None);
    let (here, away) = (eye.observe(&joint(0.0)).unwrap(), eye.observe(&joint(0.5)).unwrap());
    let change = Change::between(&here, &away).unwrap();
    assert_eq!(change.regions(&at, &here), [Region::Robot, Region::Static]);
    assert_eq!(change.regions(&at, &away), [Region::Static; 2], "it has moved on");
    // Joints of another robot: told, not failed.
    assert!(!eye.observe(&named("other", 0.0)).unwrap().is_robot(&at[0]));
    assert!(eye.without_robot.unwrap().contains("joint state lacks j"));
}
