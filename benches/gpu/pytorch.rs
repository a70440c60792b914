//! PyTorch on the same GPU, in the same run: same model, weights and points (`torch_step.py`).

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::problem::Problem;
use crate::{Table, row};

/// Seconds that PyTorch gets for one size, compiling included.
const TIMEOUT_SECS: usize = 30;

/// Adds what PyTorch takes for `problem`, of which `outputs` are expected, beside our milliseconds and
/// megabytes, or why it takes nothing.
pub fn beside(
    problem: &Problem,
    outputs: &[f32],
    ours: [f64; 2],
    table: &mut Table,
) -> anyhow::Result<()> {
    let folder = std::env::temp_dir().join(format!("forecloud-gpu-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let answer = ask(problem, outputs, &folder.join("problem.safetensors"));
    std::fs::remove_dir_all(&folder)?;
    let about = format!("{} points", problem.n_tokens());
    match answer {
        Ok(answer) => report(&about, ours, &answer, table),
        Err(why) => row(table, format!("PyTorch, {about}: none"), format!("{why:#}")),
    }
    Ok(())
}

/// What PyTorch measures of `problem`, which goes there as `file`.
fn ask(problem: &Problem, outputs: &[f32], file: &Path) -> anyhow::Result<serde_json::Value> {
    problem.write(file, Some(outputs))?;
    let python = std::env::var("PYTHON").unwrap_or("python3".into());
    let mut command = Command::new("timeout");
    command.arg(TIMEOUT_SECS.to_string()).arg(&python).arg("benches/gpu/torch_step.py").arg(file);
    let done = command.output().with_context(|| format!("timeout {python}"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{}, {}", done.status, said.lines().last().unwrap_or(""));
    Ok(serde_json::from_slice(&done.stdout)?)
}

fn report(about: &str, [our_ms, our_mb]: [f64; 2], answer: &serde_json::Value, table: &mut Table) {
    let version = answer["torch"].as_str().unwrap_or("");
    for name in ["eager fp32", "compiled bf16"] {
        let what = format!("PyTorch {version}, {name}, {about}");
        let found = &answer[name];
        let numbers = ["p50_ms", "p99_ms", "peak_mb"].map(|key| found[key].as_f64());
        let [Some(p50), Some(p99), Some(peak)] = numbers else {
            row(table, format!("{what}: none"), found["error"].as_str().unwrap_or("no answer"));
            continue;
        };
        row(table, format!("{what}: p50 / p99"), format!("{p50:.3} / {p99:.3} ms"));
        row(table, format!("{what}: its time over ours"), format!("{:.1}", p50 / our_ms));
        let share = our_mb / peak;
        row(table, format!("{what}: memory, ours of its"), format!("{share:.2} of {peak:.0} MB"));
    }
}
