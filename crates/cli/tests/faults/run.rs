//! `forecloud train` as a process, on small recordings.
#![allow(dead_code)] // each test program uses some of it

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use super::edited::write_recording;

/// Longest wait for a process: a loaded machine's.
const PATIENCE: Duration = Duration::from_secs(120);

/// A folder with recordings for training and validation, and room for runs.
pub struct Workplace {
    folder: tempfile::TempDir,
}

impl Workplace {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for split in ["train", "val"] {
            write_recording(&folder.path().join("recordings").join(split), split, |_| true);
        }
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Arguments of a run of `steps` into the folder `out`.
    pub fn arguments(&self, out: &str, steps: u64) -> Vec<String> {
        self.arguments_with(out, steps, "")
    }

    /// The same with more keys of the training (JSON, a comma first).
    pub fn arguments_with(&self, out: &str, steps: u64, more: &str) -> Vec<String> {
        let [recordings, out] = [self.path("recordings"), self.path(out)];
        let file = self.file(
            "\"n_blocks\": 1, \"n_particles\": 128, \"n_history\": 64",
            &format!("\"curriculum\": [[0, 1], [0.5, 2]], \"validation_windows\": 1{more}"),
        );
        let text = format!(
            "train {} --out {} --steps {steps} --batch 1 --width 16 {file} --validate-every 1 \
             --threads 2",
            recordings.display(),
            out.display()
        );
        text.split(' ').map(str::to_owned).collect()
    }

    pub fn run(&self, out: &str, steps: u64, more: &[&str]) -> Output {
        tool().args(self.arguments(out, steps)).args(more).output().expect("the tool runs")
    }

    /// Starts a run that writes a checkpoint after each step.
    pub fn start(&self, out: &str, steps: u64) -> Child {
        let mut command = tool();
        command.args(self.arguments_with(out, steps, ", \"checkpoint_secs\": 0"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the tool runs")
    }

    /// `--model-config` and a file with these keys of the model and the training (JSON).
    pub fn file(&self, model: &str, train: &str) -> String {
        settings_file(self.folder.path(), model, train)
    }

    pub fn checkpoint(&self, out: &str) -> PathBuf {
        self.path(out).join("checkpoint.safetensors")
    }

    /// What a run that came to its end is held to: its model's hash as the tool says it, the
    /// model file's, and loss, gradient and validation of each step.
    pub fn result(&self, out: &str, output: &Output) -> (String, String, Vec<String>) {
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let told = text.lines().find_map(|line| line.strip_prefix("model: ")).unwrap_or_default();
        let told = told.rsplit(' ').next().unwrap_or_default().to_owned();
        let model =
            forecloud::engine::model::Model::load(&self.path(out).join("model.safetensors"));
        let log = std::fs::read_to_string(self.path(out).join("train.jsonl")).unwrap();
        let step = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
            format!("{} {} {}", line["step"], line["report"], line["validation"])
        };
        (told, model.unwrap().hash, log.lines().map(step).collect())
    }
}

/// `--model-config` and a file in `folder` with these keys of the model and the training (JSON).
pub fn settings_file(folder: &Path, model: &str, train: &str) -> String {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path = folder.join(format!("settings_{number}.json"));
    let text = format!("{{\"model\": {{{model}}}, \"train\": {{{train}}}}}");
    std::fs::write(&path, text).unwrap();
    format!("--model-config {}", path.display())
}

pub fn tool() -> Command {
    Command::new(env!("CARGO_BIN_EXE_forecloud"))
}

/// Steps that a checkpoint holds; 0 while there is none.
pub fn steps_in(checkpoint: &Path) -> u64 {
    let Ok(file) = forecloud::engine::model::weights::File::open(checkpoint) else { return 0 };
    file.metadata["forecloud.step"].parse().expect("a number of steps")
}

pub fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::yield_now();
    }
}

pub fn signal(child: &Child, name: &str) {
    // The shell's own `kill`: a program of that name is not on every machine.
    let script = format!("kill -{name} {}", child.id());
    assert!(Command::new("sh").arg("-c").arg(script).status().expect("sh runs").success());
}

/// The number of the signal that ended a process.
pub fn ended_by(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}
