//! A robot's particles and link poses as JSON, for `tests/robots/` to hold against other libraries.
//!
//! ```sh
//! echo '[{"joint1": 0.5}, {}]' | cargo run -p forecloud-lab --example robot_points robot.urdf 500 FOLDER...
//! ```
//! Reads joint positions (rad or m; 0 where none is given) from stdin, looks for meshes in the
//! folders, and takes the root link as world frame.

use forecloud::robot::kinematics::{MeshSearch, Robot, RobotOptions, Spread};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: robot_points URDF N [FOLDER...]")?;
    let n_points = arguments.next().ok_or("how many points?")?.parse()?;
    let meshes = MeshSearch::only(arguments);
    let options = RobotOptions { n_points, spread: Spread::Even, world_frame: "", meshes: &meshes };
    let mut robot = Robot::with_options(&std::fs::read_to_string(path)?, &options)?;
    let given: Vec<BTreeMap<String, f64>> = serde_json::from_reader(std::io::stdin())?;
    let mut cases = Vec::new();
    for given in &given {
        let names = robot.joint_names().iter();
        let positions: Vec<f64> =
            names.map(|name| given.get(name).copied().unwrap_or(0.0)).collect();
        let mut points = Vec::new();
        robot.place(&positions, &mut points)?;
        let poses = robot.link_poses(&positions)?;
        let rows = |pose: &nalgebra::Isometry3<f64>| pose.to_homogeneous().transpose();
        let poses = poses.map(|(link, pose)| (link.to_owned(), json!(rows(pose).as_slice())));
        cases.push(json!({ "points": points, "poses": poses.collect::<Map<String, Value>>() }));
    }
    println!(
        "{}",
        json!({
            "joints": robot.joint_names(),
            "links": robot.links_of_points().collect::<Vec<_>>(),
            "warnings": robot.warnings,
            "cases": cases,
        })
    );
    Ok(())
}
