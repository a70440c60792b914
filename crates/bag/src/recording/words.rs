//! What frames say of the node's parameters and of live topics, in the words of whoever plays a
//! recording.

use forecloud::vision::frames::Problem;

/// What is said to a node's user, and to one of recordings.
const WORDS: &[(&str, &str)] = &[
    ("set depth_registered to false", "add -p depth_registered:=false"),
    ("raise tolerance_secs above ", "raise -p tolerance_secs:= above "),
    ("Set level_camera to false", "Leave out -p level_camera"),
    ("level_camera (tool: -p level_camera:=true)", "-p level_camera:=true"),
    ("say so with robot: none", "say so with -p robot:=none"),
    ("check its driver, and the name with `ros2 topic list`", "see `forecloud info`"),
    ("check that it is published (ros2 topic list)", "see `forecloud info`, and record it"),
    ("(ros2 topic hz)", "(`forecloud info` tells their rates)"),
    ("is published", "was recorded"),
    (
        "set camera_timeout_secs to ",
        "record it more often; the node takes it with camera_timeout_secs: ",
    ),
    (" (camera_timeout_secs)", ""),
];

/// The problem in words that help with a recording.
pub(super) fn of_recordings(mut problem: Problem) -> Problem {
    for (node, tool) in WORDS {
        if problem.first.contains(node) {
            problem.first = problem.first.replace(node, tool);
        }
    }
    problem
}

#[cfg(test)]
mod tests {
    use super::*;
    use forecloud::vision::frames::ProblemKind;

    #[test]
    fn options_of_the_tool_are_named_in_place_of_parameters() {
        let said = |first: &str| {
            let kind = ProblemKind::Mismatch;
            of_recordings(Problem { kind, first: first.into(), count: 1 }).first
        };
        assert_eq!(
            said("not registered: set depth_registered to false, or publish other depth"),
            "not registered: add -p depth_registered:=false, or publish other depth"
        );
        assert_eq!(
            said("5 ms apart: raise tolerance_secs above 0.0251 or synchronise the cameras"),
            "5 ms apart: raise -p tolerance_secs:= above 0.0251 or synchronise the cameras"
        );
        assert_eq!(
            said("no joint state: check that /joint_states is published"),
            "no joint state: check that /joint_states was recorded"
        );
    }

    #[test]
    fn what_is_put_in_other_words_is_what_frames_say() {
        // Their sources, each text on one line.
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../src/vision");
        let mut folders = vec![std::path::PathBuf::from(root)];
        let mut said = String::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => said += &std::fs::read_to_string(path).unwrap(),
                }
            }
        }
        let said = said.replace("\\\n", " ").split_whitespace().collect::<Vec<_>>().join(" ");
        for (node, _) in WORDS {
            assert!(said.contains(node.trim()), "frames don't say '{node}' any more");
        }
    }
}
