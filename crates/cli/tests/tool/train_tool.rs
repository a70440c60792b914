//! `forecloud train` and `forecloud compare` as somebody types them: what they refuse, what they tell,
//! what they leave.

use crate::edited;
use crate::run;

use std::path::Path;
use std::process::Output;

use edited::{write_recording, write_rounds};
use forecloud::engine::model::Model;
use run::{Workplace, steps_in, tool, wait_until};

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The tool with these words; they hold no blanks.
fn tool_with(line: &str) -> Output {
    tool().args(line.split_whitespace()).output().expect("the tool runs")
}

/// Fails with `code`, says each of `words`, and does not panic.
fn refused(output: &Output, code: i32, words: &[&str]) {
    let message = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{message}");
    assert!(!message.contains("panicked"), "{message}");
    for word in words {
        assert!(message.contains(word), "expected '{word}': {message}");
    }
}

#[test]
fn a_split_that_nothing_is_of_is_refused_before_the_work() {
    let folder = tempfile::tempdir().unwrap();
    let recordings = folder.path().join("recordings");
    crate::edited::write_recording(&recordings.join("a"), "train", |_| true);
    let (recordings, out) = (recordings.display(), folder.path().join("out").display().to_string());
    let line = format!("compare {recordings} --out {out} --test-split nope");
    refused(&tool_with(&line), 2, &["--test-split nope", "there are train"]);
}

#[test]
fn numbers_out_of_range_are_refused_when_they_are_read_by_option_and_range() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display();
    // Neither folder is looked at: recordings are not there.
    let both = [
        ("--batch", "0 -1 1025 nan 99999999999999999999", "1..=1024"),
        ("--max-recordings", "0 -1", "1..="),
        ("--hold-out", "0 1 -0.1 nan inf", "0.001..=0.9"),
    ];
    let train = [
        ("--steps", "0 -1 1e9 99999999999", "1..=1000000000"),
        ("--stop-at", "0", "1..="),
        ("--learning-rate", "0 -1 nan inf 1e39 2", "..=1"),
        ("--validate-every", "0", "1..="),
        ("--threads", "0 x", "1..="),
    ];
    let compare = [
        ("--budget-secs", "0 -1 nan inf", "0.001..="),
        ("--learning-rates", "0.001,nan 0 -1 inf 0.001,2", "..=1"),
        ("--test-windows", "0", "1..="),
        ("--seeds", "0 1001", "1..=1000"),
        ("--jobs", "0", "1..="),
    ];
    let of_train = both.iter().chain(&train).map(|row| ("train", row));
    for (command, (option, values, range)) in
        of_train.chain(both.iter().chain(&compare).map(|row| ("compare", row)))
    {
        for value in values.split(' ') {
            let line = format!("{command} {place}/none --out {place}/out {option}={value}");
            refused(&tool_with(&line), 2, &[option, range]);
        }
    }
    // What a file says, and what does not fit the machine.
    let file = |model: &str, train: &str| run::settings_file(folder.path(), model, train);
    for (model, train, told) in [
        ("\"k\": 0", "", "model.k: 0 is not in 1..=32"),
        ("\"blocks\": 1", "", "unknown key 'model.blocks'; known: "),
        ("\"width\": 999999999999", "", "model.width"),
        ("\"n_history\": 9999999", "", "model.n_history"),
        ("", "\"sensor_noise\": 11", "train.sensor_noise: 11 is not in 0..=10"),
        ("", "\"rate\": 1", "unknown key 'train.rate'; known: "),
        ("", "\"curriculum\": [[0.5, 1]]", "the first share is 0.5, not 0"),
    ] {
        let file = file(model, train);
        let name = file.strip_prefix("--model-config ").unwrap();
        for command in ["train", "compare", "label"] {
            let out = if command == "label" { "labels" } else { "out" };
            let line = format!("{command} {place}/none --{out} {place}/out {file}");
            // A label says first that there are no recordings.
            if command != "label" || told.starts_with("unknown") {
                refused(&tool_with(&line), 2, &["--model-config", name, told]);
            }
        }
    }
    for (words, told) in [
        ("--width=0", "--width: 0 is not in 1..=4096"),
        ("--width=30", "--width: 4 does not divide width 30"),
        ("--steps-per-pass=21", "--steps-per-pass: 21 is not in 1..=20"),
        ("--keep=new", "--keep"),
        ("--remember=x", "--remember: only a run that starts --from"),
        ("--teacher=video", "--video FILE"),
        ("--model-config=none.json", "--model-config"),
    ] {
        refused(&tool_with(&format!("train {place}/none --out {place}/out {words}")), 2, &[told]);
    }
    let huge = file("\"n_particles\": 1000000, \"width\": 512", "");
    for command in ["train", "compare"] {
        let line = format!("{command} {place}/none --out {place}/out --batch=1024 {huge}");
        refused(&tool_with(&line), 1, &["GiB of memory", "--batch"]);
    }
    assert!(!Path::new(&format!("{place}/out")).exists());
}

#[test]
fn every_recording_is_found_and_what_is_left_out_is_named_and_counted() {
    let place = Workplace::new();
    let at = |name: &str| place.path("recordings").join(name);
    // Without metadata.yaml, nested, loose: all are taken.
    write_recording(&at("bare"), "train", |_| true);
    std::fs::remove_file(at("bare/metadata.yaml")).unwrap();
    write_recording(&at("deep/er"), "train", |_| true);
    write_recording(&at("moved"), "train", |_| true);
    std::fs::rename(at("moved/tiny_push.mcap"), at("loose.mcap")).unwrap();
    std::fs::remove_dir_all(at("moved")).unwrap();
    // Cut behind its data.
    write_recording(&at("cut"), "train", |_| true);
    let file = at("cut/tiny_push.mcap");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 40]).unwrap();
    // Left out.
    write_recording(&at("no_truth"), "train", |message| !message.topic.starts_with("/truth"));
    write_recording(&at("of_test"), "test", |_| true);
    write_recording(&at("garbage"), "train", |_| true);
    std::fs::write(at("garbage/tiny_push.mcap"), "no recording").unwrap();
    let output = place.run("out", 1, &[]);
    let told = stderr(&output);
    assert!(output.status.success(), "{told}");
    for line in [
        &format!("warning: {}", file.display()),
        &format!("left out: {}", at("garbage").display()),
        "training: 6 recordings, 1 recording taught by hindsight, ",
        "left out, of split 'test': of_test",
        "recordings: 9 found, 7 used (6 train, 1 val), 2 left out: 1 can't be used, 1 of split 'test'",
    ] {
        assert!(told.contains(line), "expected '{line}':\n{told}");
    }
    let told = stderr(&place.run("by_truth", 1, &["--teacher", "truth"]));
    for line in [
        "left out, without truth (topic /truth/bodies): no_truth",
        "recordings: 9 found, 6 used (5 train, 1 val), 3 left out: 1 can't be used, 1 without truth \
         (topic /truth/bodies), 1 of split 'test'",
    ] {
        assert!(told.contains(line), "expected '{line}':\n{told}");
    }
    // Of the same folder, a comparison tells the same.
    let line = format!(
        "compare {} --out {} --variants grf --budget-secs 0.05 --seeds 1 --learning-rates 0.001 \
         --test-windows 1 --batch 1 {}",
        place.path("recordings").display(),
        place.path("compared").display(),
        place.file(
            "\"width\": 16, \"n_blocks\": 1, \"n_particles\": 64, \"n_history\": 16, \"chunk\": 1, \"stride\": null",
            "\"curriculum\": [[0, 1]], \"validation_windows\": 1"
        )
    );
    let told = stderr(&tool_with(&line));
    for line in ["cut", "garbage", "without truth (topic /truth/bodies): no_truth"] {
        assert!(told.contains(line), "expected '{line}':\n{told}");
    }
    assert!(
        told.contains("recordings: 9 found, 7 used (5 train, 1 val, 1 test), 2 left out"),
        "{told}"
    );
    // They are too short to be compared on, which is not the curriculum's fault.
    assert!(told.contains("no validation recording has 5 steps"), "{told}");
}

#[test]
fn without_recordings_for_training_the_reasons_stand_above_the_error() {
    let place = Workplace::new();
    for split in ["train", "val"] {
        std::fs::remove_dir_all(place.path("recordings").join(split)).unwrap();
    }
    let output = place.run("out", 1, &[]);
    refused(&output, 1, &["no recordings", "sim.generate"]);
    write_recording(&place.path("recordings").join("a"), "test", |_| true);
    refused(
        &place.run("out", 1, &[]),
        1,
        &["of split 'test': a", "recordings of your robot will do"],
    );
    assert!(!place.path("out").exists(), "nothing was written, so nothing is left");
}

#[test]
fn without_validation_recordings_some_are_held_out_and_told() {
    let place = Workplace::new();
    std::fs::remove_dir_all(place.path("recordings/val")).unwrap();
    refused(&place.run("one", 1, &[]), 1, &["--hold-out: 1 training recording shorter than 30 s"]);
    for name in ["a", "b", "c"] {
        write_recording(&place.path("recordings").join(name), "train", |_| true);
    }
    let arguments = place.arguments_with("out", 2, ", \"hold_out_seed\": 3");
    let run = || tool().args(&arguments).args(["--hold-out", "0.5"]).output().unwrap();
    let output = run();
    let told = stderr(&output);
    assert!(output.status.success(), "{told}");
    let line = "no recording is of split 'val': 2 of 4 held out for validation (--hold-out 0.5): ";
    let names = told.split_once(line).expect(&told).1.lines().next().unwrap();
    assert_eq!(names.split(", ").count(), 2, "{names}");
    assert!(told.contains("training: 2 recordings, 8 windows"), "{told}");
    // The same seed, the same ones: the run goes on.
    let again = stderr(&run());
    assert!(again.contains(&format!("{line}{names}")), "{again}");
    assert!(again.contains("step 2 is already done"), "{again}");
}

#[test]
fn a_run_ends_with_a_table_a_picture_and_the_next_command() {
    let place = Workplace::new();
    let output = place.run("out", 4, &["--stop-at", "3"]);
    assert!(stdout(&output).contains("next: the same command without --stop-at, to step 4"));
    let output = place.run("out", 4, &[]);
    let (told, text) = (stderr(&output), stdout(&output));
    assert!(told.contains("resuming after step 3, until step 4"), "{told}");
    assert!(told.contains("step 4: loss ") && !told.contains('{'), "no JSON: {told}");
    // What the small recording is too short for is told, and not said to be 0 or null.
    let log = std::fs::read_to_string(place.path("out/train.jsonl")).unwrap();
    assert!(!log.contains("null") && log.contains("\"n_steps\":4"), "{log}");
    assert!(told.contains("no window reaches 5 steps, so 4 are validated"), "{told}");
    for row in [
        "Validation after step 4",
        "\nmodel  ",
        "\nnothing moves  ",
        "\nconstant velocity, true *  ",
    ] {
        assert!(text.contains(row), "expected '{row}':\n{text}");
    }
    let model = place.path("out/model.safetensors");
    let next = format!(
        "next: forecloud replay --model {} {}",
        model.display(),
        place.path("recordings/val").display()
    );
    assert!(text.contains(&next), "{text}");
    let next = next.strip_prefix("next: forecloud ").unwrap();
    assert!(tool_with(next).status.success(), "the next command runs");
    let picture = std::fs::read_to_string(place.path("out/curve.svg")).unwrap();
    assert!(picture.contains("after 4 steps") && picture.contains("False motion"), "{picture}");
    // Without its log, it has ended as well.
    std::fs::remove_file(place.path("out/train.jsonl")).unwrap();
    let output = place.run("out", 4, &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("curve: none"), "{}", stdout(&output));
}

#[test]
fn what_forecloud_did_not_write_is_not_replaced() {
    let place = Workplace::new();
    let files = ["model.safetensors", "checkpoint.safetensors", "train.jsonl", "curve.svg"];
    for (i, file) in files.into_iter().enumerate() {
        let out = format!("out{i}");
        let path = place.path(&out).join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "somebody's work\n").unwrap();
        refused(&place.run(&out, 1, &[]), 1, &[file, "that Forecloud wrote", "another --out"]);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "somebody's work\n");
        assert_eq!(std::fs::read_dir(place.path(&out)).unwrap().count(), 1);
    }
    // Nor what lies beside those files, or where a link beside them leads.
    std::fs::create_dir(place.path("first")).unwrap();
    let notes = ["model.safetensors.part", "checkpoint.safetensors.part"].map(|name| {
        let precious = place.path(&format!("precious of {name}"));
        std::fs::write(&precious, "somebody's work\n").unwrap();
        std::os::unix::fs::symlink(&precious, place.path("first").join(name)).unwrap();
        precious
    });
    // Nor is the model that training starts from.
    assert!(place.run("first", 1, &[]).status.success());
    for precious in notes {
        assert_eq!(std::fs::read_to_string(precious).unwrap(), "somebody's work\n");
    }
    let model = place.path("first/model.safetensors");
    let before = std::fs::read(&model).unwrap();
    std::fs::remove_file(place.checkpoint("first")).unwrap();
    let line = format!(
        "train {} --out {} --steps 1 --from {}",
        place.path("recordings").display(),
        place.path("first").display(),
        model.display()
    );
    refused(&tool_with(&line), 1, &["is an input", "another --out"]);
    assert_eq!(std::fs::read(&model).unwrap(), before);
    // A run without its checkpoint starts anew, and the model and the log of before are kept.
    let output = place.run("first", 2, &[]);
    assert!(stderr(&output).contains("kept as "), "{}", stderr(&output));
    assert_eq!(std::fs::read(place.path("first/model.1.safetensors")).unwrap(), before);
    assert!(place.path("first/train.1.jsonl").is_file());
    // A run's folder does not lie in a recording.
    let inside = place.path("recordings/val/run");
    let line = format!("train {} --out {}", place.path("recordings").display(), inside.display());
    refused(&tool_with(&line), 1, &["lies in the recording", "another --out"]);
    assert!(!inside.exists());
    // The same for comparisons.
    for file in ["comparison.csv", "comparison.svg", "grf", "plan.json"] {
        let out = place.path(&format!("of_{file}"));
        std::fs::create_dir_all(&out).unwrap();
        std::fs::write(out.join(file), "somebody's work\n").unwrap();
        let recordings = place.path("recordings");
        write_recording(&recordings.join("of_test"), "test", |_| true);
        let line = format!("compare {} --out {}", recordings.display(), out.display());
        refused(&tool_with(&line), 1, &[file, "--out"]);
        assert_eq!(std::fs::read_to_string(out.join(file)).unwrap(), "somebody's work\n");
    }
}

#[test]
fn two_runs_in_one_folder_are_refused_until_the_first_ends_however_it_does() {
    let place = Workplace::new();
    let mut first = place.start("out", 2000);
    wait_until("a checkpoint", || steps_in(&place.checkpoint("out")) >= 1);
    refused(&place.run("out", 2000, &[]), 1, &["another run of forecloud", "--out"]);
    let line =
        format!("compare {0} --out {1}", place.path("none").display(), place.path("out").display());
    refused(&tool_with(&line), 1, &["another run of forecloud"]);
    first.kill().unwrap();
    first.wait().unwrap();
    let step = (steps_in(&place.checkpoint("out")) + 1).to_string();
    let output = place.run("out", 2000, &["--stop-at", &step]);
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn what_is_wrong_with_the_folder_or_the_checkpoint_is_told_before_recordings_are_read() {
    let place = Workplace::new();
    std::fs::write(place.path("taken"), "no folder").unwrap();
    let line = |out: &str, more: &str| {
        let [recordings, out] = [place.path("not_there"), place.path(out)];
        format!("train {} --out {} {more}", recordings.display(), out.display())
    };
    refused(&tool_with(&line("taken/below", "")), 1, &["cannot write into", "another --out"]);
    assert!(place.run("out", 1, &[]).status.success());
    let told =
        ["can't resume the run", "(model.n_blocks: 1 there, 4 here;", "batch: 1 there, 2 here"];
    refused(&tool_with(&line("out", "")), 1, &told);
    let bytes = std::fs::read(place.checkpoint("out")).unwrap();
    std::fs::write(place.checkpoint("out"), &bytes[..bytes.len() / 2]).unwrap();
    let output = place.run("out", 1, &[]);
    refused(&output, 1, &["the checkpoint is damaged", "--from", "move it away"]);
    assert!(!stderr(&output).contains("recordings:"), "{}", stderr(&output));
}

#[test]
fn warnings_of_the_robots_description_are_shown_once_with_their_number() {
    let place = Workplace::new();
    for name in ["a", "b"] {
        write_recording(&place.path("recordings").join(name), "train", |message| {
            if &*message.topic == "/robot_description" {
                *message = edited::without_world(message);
            }
            true
        });
    }
    let told = stderr(&place.run("out", 1, &[]));
    let line = "warning: robot description of 2 recordings: the robot description has no link 'world', \
         and where no transform";
    assert_eq!(told.matches(line).count(), 1, "{told}");
}

/// Recordings that a user can make have no truth: they are trained on by hindsight, and the end tells
/// what that has brought.
#[test]
fn recordings_without_truth_are_trained_on_by_hindsight() {
    let place = Workplace::new();
    let recordings = place.path("recordings");
    std::fs::remove_dir_all(&recordings).unwrap();
    for name in ["a", "b", "c"] {
        write_recording(&recordings.join(name), "", |message| !message.topic.starts_with("/truth"));
    }
    let output = place.run("start", 1, &[]);
    let told = stderr(&output);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("no recording is of split 'val': 1 of 3 held out"), "{told}");
    assert!(told.contains("training: 2 recordings, taught by hindsight, 8 windows"), "{told}");
    let told = stdout(&output);
    assert!(!told.contains("true *") && !told.contains("Before and after"), "{told}");
    let model = place.path("start/model.safetensors");
    let line = format!(
        "train {} --out {} --from {} --steps 1 --batch 1 {}",
        recordings.display(),
        place.path("tuned").display(),
        model.display(),
        place.file("", "\"curriculum\": [[0, 1]], \"validation_windows\": 3")
    );
    let output = tool_with(&line);
    let told = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    for line in [
        "Before and after",
        "These recordings are too few to say",
        "(hindsight)",
        "tried.safetensors",
    ] {
        assert!(told.contains(line), "expected '{line}':\n{told}");
    }
    assert!(
        stderr(&output).contains("too little moves in these recordings"),
        "{}",
        stderr(&output)
    );
    // One recording can't tell that the new model is better: that before is left, and the new one beside.
    let load = |name: &str| Model::load(&place.path(name)).unwrap().hash;
    let [before, left] = ["start", "tuned"].map(|run| load(&format!("{run}/model.safetensors")));
    assert_eq!(left, before);
    assert_ne!(load("tuned/tried.safetensors"), before);
    // The same command takes it nevertheless, if told to.
    assert!(tool_with(&format!("{line} --keep new")).status.success());
    assert_eq!(load("tuned/model.safetensors"), load("tuned/tried.safetensors"));
    // What has grown is left in any case: before its training it is nobody's model.
    let grown = line.replace("/tuned ", "/grown ") + " --steps-per-pass 12";
    assert!(tool_with(&grown).status.success());
    assert!(!place.path("grown/tried.safetensors").exists());
    assert_eq!(
        Model::load(&place.path("grown/model.safetensors")).unwrap().config.steps_per_pass,
        12
    );
    // What was found by hindsight is kept, and found again by its content.
    let labels = place.path("tuned/labels");
    let n_kept = || std::fs::read_dir(&labels).unwrap().count();
    assert!((1..=3).contains(&n_kept()), "{}", n_kept());
    let hash = load("tuned/model.safetensors");
    let again = line.replace("/tuned ", "/again ") + " --keep new --labels ";
    assert!(tool_with(&format!("{again}{}", labels.display())).status.success());
    assert_eq!(load("again/model.safetensors"), hash);
    assert!(!place.path("again/labels").exists());
    // Never in a recording.
    let inside =
        format!("{again}{}", recordings.join("a").display()).replace("/again ", "/inside ");
    refused(&tool_with(&inside), 1, &["cannot write into", "recordings/a"]);
    assert!(!recordings.join("a/labels").exists());
    // A teacher that there is not.
    refused(&place.run("other", 1, &["--teacher", "truth"]), 1, &["without truth", "a, b, c"]);
    refused(&place.run("other", 1, &["--teacher", "video"]), 2, &["--video FILE", "train-video"]);
    refused(&place.run("other", 1, &["--keep", "new"]), 2, &["--keep", "--from"]);
    refused(&place.run("other", 1, &["--teacher", "me"]), 2, &["--teacher", "hindsight"]);
}

/// What a model knows is drawn again and again, and the end tells what is left of it.
#[test]
fn what_is_to_be_remembered_is_trained_on_and_measured() {
    let place = Workplace::new();
    assert!(place.run("start", 1, &[]).status.success());
    let model = place.path("start/model.safetensors");
    let own = place.path("own");
    for name in ["a", "b", "c"] {
        write_recording(&own.join(name), "", |message| !message.topic.starts_with("/truth"));
    }
    let tune = |out: &str, more: &str| {
        tool_with(&format!(
            "train {} --out {} --from {} --steps 3 --batch 2 {} {more}",
            own.display(),
            place.path(out).display(),
            model.display(),
            place.file("", "\"curriculum\": [[0, 1]], \"validation_windows\": 3")
        ))
    };
    let known = place.path("recordings");
    let output = tune("tuned", &format!("--keep new --remember {}", known.display()));
    assert!(output.status.success(), "{}", stderr(&output));
    let told = stderr(&output);
    for line in [
        "training: 2 recordings, taught by hindsight",
        "to remember: recordings: 2 found, 2 used (1 train, 1 val)",
        "to remember: training: 1 recording, 4 windows",
    ] {
        assert!(told.contains(line), "expected '{line}':\n{told}");
    }
    let told = stdout(&output);
    assert!(told.contains("What was known before, ") && told.contains("still knows it"), "{told}");
    // It makes another model than without.
    assert!(tune("alone", "--keep new").status.success());
    let load = |name: &str| Model::load(&place.path(name)).unwrap().hash;
    assert_ne!(load("tuned/model.safetensors"), load("alone/model.safetensors"));
    // Nothing is written into what is read, and without a model there is nothing to remember.
    let inside =
        format!("train {} --out {} --steps 1", own.display(), known.join("val/x").display());
    let told = format!("{inside} --from {} --remember {}", model.display(), known.display());
    assert!(!tool_with(&told).status.success());
    refused(&place.run("other", 1, &["--remember", "x"]), 2, &["--from"]);
}

#[test]
fn a_run_goes_on_from_the_model_and_with_the_recordings_that_it_was_begun_with() {
    let place = Workplace::new();
    for seed in ["1", "2"] {
        assert!(place.run(&format!("start{seed}"), 1, &["--seed", seed]).status.success());
    }
    let recordings = place.path("recordings");
    let line_with = |from: &str, seed: u64, more: &str| {
        format!(
            "train {} --out {} --from {}/model.safetensors --steps 3 --batch 1 {} {more}",
            recordings.display(),
            place.path("tuned").display(),
            place.path(from).display(),
            place.file(
                "",
                &format!(
                    "\"curriculum\": [[0, 1]], \"validation_windows\": 1, \"hold_out_seed\": {seed}"
                )
            )
        )
    };
    let line = |from: &str, more: &str| line_with(from, 0, more);
    let output = tool_with(&line("start1", "--stop-at 2"));
    assert!(output.status.success(), "{}", stderr(&output));
    let begun = std::fs::read(place.checkpoint("tuned")).unwrap();
    let refused = |from: &str, more: &str, told: &str| {
        refused(&tool_with(&line(from, more)), 1, &["can't resume", told, "another --out"]);
        assert!(std::fs::read(place.checkpoint("tuned")).unwrap() == begun, "it was written");
    };
    for (from, more, told) in [
        ("start2", "", "(--from: model "),
        ("start1", "--teacher hindsight", "(--teacher: auto there, hindsight here)"),
        ("start1", "-p robot:=none", "(-p robot: optional there, none here)"),
        (
            "start1",
            "--remap /joint_states:=/arm",
            "(--remap: not given there, /joint_states:=/arm here)",
        ),
        ("start1", "--hold-out 0.5", "(--hold-out: 0.1 there, 0.5 here)"),
    ] {
        refused(from, more, told);
    }
    let other = tool_with(&line_with("start1", 3, ""));
    assert!(stderr(&other).contains("train.hold_out_seed: 0 there, 3 here"), "{}", stderr(&other));
    let sizes = place.file("\"k\": 4", "");
    let told = tool_with(&line("start1", "").replace("--steps 3", &format!("--steps 3 {sizes}")));
    assert_eq!(told.status.code(), Some(2), "{}", stderr(&told));
    write_recording(&recordings.join("more"), "train", |_| true);
    refused("start1", "", "(training: more added)");
    std::fs::rename(recordings.join("more"), place.path("more")).unwrap();
    std::fs::create_dir(place.path("known")).unwrap();
    for split in ["train", "val"] {
        write_recording(&place.path("known").join(split), split, |_| true);
    }
    let known = format!("--remember {}", place.path("known").display());
    refused(
        "start1",
        &known,
        "(training, to remember: train added; validation, to remember: val added)",
    );
    // The model's file may lie elsewhere, and what is only measured or printed may differ.
    std::fs::rename(place.path("start1"), place.path("elsewhere")).unwrap();
    let again = line("elsewhere", "--validate-every 1 --keep new --stop-at 2");
    let output = tool_with(&again);
    assert!(output.status.success(), "{}", stderr(&output));
    let told = stderr(&output);
    let notes = told.lines().filter(|line| line.contains("note:") && !line.contains("no effect"));
    assert_eq!(notes.count(), 0, "{told}");
}

/// README's lines from the first recordings to a model that tells how sure it is, with fewer steps and
/// windows: what they make is of the family that ships.
#[test]
fn what_is_trained_by_default_is_calibrated_and_replayed_as_the_shipped_model_is() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let recordings = at("recordings");
    // As long as a pass and a second look, and as many as a calibration needs.
    write_rounds(&recordings.join("push_0"), "train", 3);
    for i in 1..=8 {
        write_rounds(&recordings.join(format!("push_{i}")), "val", 3);
    }
    let here = |line: &str| {
        let mut command = tool();
        command.current_dir(place.path()).args(line.split_whitespace());
        let output = command.output().expect("the tool runs");
        assert!(output.status.success(), "{line}: {}", stderr(&output));
        output
    };
    here("train recordings --out runs/mine --steps 2");
    here("calibrate recordings --model runs/mine/model.safetensors --out mine.safetensors");
    let told = stdout(&here("replay --model mine.safetensors recordings/push_8"));
    assert!(told.contains("within sigma_90, %"), "{told}");
    let shipped = Path::new(crate::ROOT).join("models/small.safetensors");
    let [mine, shipped] =
        [&at("mine.safetensors"), &shipped].map(|path| Model::load(path).unwrap());
    assert_eq!(mine.config, shipped.config);
    let n_steps = |model: &Model| model.calibration.as_ref().unwrap().factors[0][0].len();
    assert_eq!([n_steps(&mine), n_steps(&shipped)], [10, 10]);
}
