//! Recordings in which messages were written late, or that have two robots.

use forecloud::vision::frames::{Frame, FrameCounts, FramesConfig};
use forecloud_bag::bag::RawMessage;
use forecloud_bag::recording::Recording;
use std::path::Path;

use super::edited::{string_message, write_messages};

/// All frames, and what became of the messages.
fn played(folder: &Path, patience_secs: Option<f64>) -> (Vec<Frame>, FrameCounts, Vec<String>) {
    let config = FramesConfig { patience_secs, ..FramesConfig::default() };
    let recording = Recording::open(folder, config).unwrap();
    let mut frames = Vec::new();
    let played = recording.play(|frame, _| {
        frames.push(frame);
        Ok::<_, ()>(())
    });
    (frames, played.unwrap().0, recording.told().to_vec())
}

/// The small recording with the messages that `edit` makes of each.
fn written(edit: impl FnMut(RawMessage) -> Vec<RawMessage>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_messages(folder.path(), "test", edit);
    folder
}

#[test]
fn joints_that_were_recorded_late_are_waited_for_or_all_taken() {
    let late = |secs: f64| {
        written(move |mut message| {
            if &*message.topic == "/joint_states" {
                message.log_time_ns += (secs * 1e9) as i64;
            }
            vec![message]
        })
    };
    let with_robot = |frames: &[Frame]| frames.iter().filter(|f| f.robot.is_some()).count();
    let (expected, ..) = played(late(0.0).path(), Some(0.1));
    for (secs, patience_secs, n) in
        [(0.07, Some(0.1), 6), (0.5, Some(0.1), 0), (0.5, None, 6), (20.0, None, 6)]
    {
        let (frames, counts, _) = played(late(secs).path(), patience_secs);
        assert_eq!(
            (frames.len(), with_robot(&frames)),
            (6, n),
            "{secs} {patience_secs:?}: {counts:?}"
        );
        if n == 6 {
            let same = frames.iter().zip(&expected).all(|(a, b)| a.robot == b.robot);
            assert!(same, "{secs} {patience_secs:?}");
        }
    }
}

#[test]
fn of_two_robot_descriptions_the_newer_one_counts() {
    let folder = written(|message| match &*message.topic {
        "/robot_description" => {
            let mut other = message.clone();
            other.data = string_message("<robot name='hand'><link name='palm'/></robot>");
            other.log_time_ns -= 1;
            vec![other, message]
        }
        _ => vec![message],
    });
    let (frames, counts, told) = played(folder.path(), Some(0.1));
    assert!(
        frames
            .iter()
            .all(|frame| frame.robot_description.as_deref().is_some_and(|urdf| urdf.len() > 100))
    );
    assert!(frames.iter().all(|frame| frame.robot.is_some()), "{counts:?}");
    assert_eq!(counts.robot_changes, 1);
    assert!(told.iter().any(|text| text.contains("another robot description")), "{told:?}");
}
