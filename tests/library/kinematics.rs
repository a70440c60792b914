//! Link poses against MuJoCo's (`sim/fixtures.py` wrote them).

use forecloud::robot::kinematics::Robot;
use nalgebra::{Isometry3, Quaternion, Translation3, UnitQuaternion};
use std::collections::BTreeMap;

#[derive(serde::Deserialize)]
struct Golden {
    urdf: String,
    joints: Vec<String>,
    cases: Vec<Case>,
}

#[derive(serde::Deserialize)]
struct Case {
    positions: Vec<f64>,
    /// x, y, z (m), quaternion x, y, z, w; world frame.
    poses: BTreeMap<String, [f64; 7]>,
}

#[test]
fn link_poses_are_those_of_mujoco() {
    let golden: Golden = serde_json::from_str(&read("kinematics.json")).unwrap();
    let mut robot = Robot::from_urdf(&read(&golden.urdf), 512, "world").unwrap();
    assert_eq!(robot.warnings, Vec::<String>::new());
    let order = robot.order(&golden.joints).unwrap();
    assert!(order.ignored.is_empty());
    let (mut positions, mut points) = (Vec::new(), Vec::new());
    let mut n_poses = 0;
    for (i, case) in golden.cases.iter().enumerate() {
        order.apply(&case.positions, &mut positions).unwrap();
        for (link, pose) in robot.link_poses(&positions).unwrap() {
            let Some(&[x, y, z, qx, qy, qz, qw]) = case.poses.get(link) else { continue };
            let rotation = UnitQuaternion::from_quaternion(Quaternion::new(qw, qx, qy, qz));
            let expected = Isometry3::from_parts(Translation3::new(x, y, z), rotation);
            let gap = (expected.translation.vector - pose.translation.vector).norm();
            let angle = expected.rotation.angle_to(&pose.rotation);
            assert!(gap < 1e-9 && angle < 1e-6, "case {i}, {link}: {gap} m, {angle} rad");
            n_poses += 1;
        }
        robot.place(&positions, &mut points).unwrap();
        assert_eq!(points.len(), 512);
    }
    let expected: usize = golden.cases.iter().map(|case| case.poses.len()).sum();
    assert_eq!(n_poses, expected);
    assert!(n_poses >= 80, "{n_poses}");
}

fn read(name: &str) -> String {
    let path = format!("{}/tests/data/{name}", crate::ROOT);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}
