//! The comparison with PyTorch runs by hand; its side in Rust must still work when somebody does.

use crate::peer;

#[test]
fn the_peer_answers_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (problem, check) = (path("problem.safetensors"), path("check.safetensors"));
    let write = ["write", &problem, "--tokens", "256", "--width", "16"];
    peer::run(&write, &b""[..], Vec::new()).unwrap();
    let commands = format!("forward\ntrain\ntrain\ncheck {check}\nreset\ntrain\n");
    let mut answers = Vec::new();
    peer::run(&["serve", &problem], commands.as_bytes(), &mut answers).unwrap();

    let answers = String::from_utf8(answers).unwrap();
    let lines: Vec<&str> = answers.lines().collect();
    let numbers = |line: usize| -> Vec<f64> {
        let words = lines[line].split_whitespace();
        words.map(|word| word.parse().unwrap_or_else(|_| panic!("{answers}"))).collect()
    };
    assert_eq!((lines.len(), lines[0], lines[4], lines[5]), (7, "ready", "written", "reset"));
    assert!(numbers(1)[0] > 0.0, "{answers}");
    let losses = [2, 3, 6].map(|line| numbers(line)[1]);
    assert!(losses[1] < losses[0], "the loss falls: {answers}");
    assert_eq!(losses[2], losses[0], "a reset brings the first weights back");

    let bytes = std::fs::read(&check).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.tensor("output").unwrap().shape(), [256, 80]);
    for (name, tensor) in file.tensors() {
        let values =
            tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
        let largest =
            values.fold(0.0f32, |m, x| if x.is_finite() { m.max(x.abs()) } else { f32::NAN });
        assert!(largest > 0.0, "{name}: {largest}");
    }
    let again = path("recomputed.safetensors");
    let commands = format!("train\ncheck {again}\n");
    let mut answers = Vec::new();
    peer::run(&["serve", &problem, "--recompute"], commands.as_bytes(), &mut answers).unwrap();
    let commands = format!("train\ncheck {check}\n");
    peer::run(&["serve", &problem], commands.as_bytes(), Vec::new()).unwrap();
    assert!(std::fs::read(&check).unwrap() == std::fs::read(&again).unwrap(), "other gradients");

    let error = peer::run(&["serve", &problem], &b"forwards"[..], Vec::new()).unwrap_err();
    assert!(error.to_string().contains("forwards"), "{error}");
}

#[test]
fn the_layers_are_timed_in_turns() {
    let mut answers = Vec::new();
    let arguments = ["layers", "--tokens", "256", "--width", "16", "--runs", "3"];
    peer::run(&arguments, &b""[..], &mut answers).unwrap();
    let rows = String::from_utf8(answers).unwrap();
    let rows: Vec<serde_json::Value> =
        rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<_> = rows.iter().map(|row| row["local"].as_str().unwrap()).collect();
    assert_eq!(names, ["grf", "message_passing", "linear", "none"]);
    for row in &rows {
        let times = row["milliseconds"].as_array().unwrap();
        assert!(times.len() == 3 && times.iter().all(|ms| ms.as_f64().unwrap() > 0.0), "{row}");
    }
}
