//! PyTorch on the same GPU, in the same run: same model, weights and points (`torch_step.py`).

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use forecloud::model::{Engine, Mode};

use crate::problem::Problem;
use crate::support::Demo;
use crate::{Table, row};

/// What was measured of Forecloud's step on the device.
pub struct Ours {
    pub n_tokens: usize,
    /// From positions on the device to displacements on the device.
    pub p50_ms: f64,
    pub device_mb: f64,
}

/// Adds PyTorch's times and the ratios to ours, or why there are none.
pub fn compare(demo: &Demo, width: usize, ours: &[Ours], table: &mut Table) -> anyhow::Result<()> {
    let folder = std::env::temp_dir().join(format!("forecloud-gpu-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let compared = ours.iter().try_for_each(|ours| {
        let file = folder.join("problem.safetensors");
        let problem = Problem::new(demo, ours.n_tokens, width)?;
        let mut engine = Engine::new(problem.config, Mode::Inference);
        let n = problem.n_tokens();
        engine.forward(&problem.weights, &problem.features, &problem.graph()?, n)?;
        problem.write(&file, Some(engine.output()))?;
        match ask(&file, "cuda") {
            Ok(answer) => report(ours, &answer, table),
            Err(why) => {
                row(table, format!("PyTorch, {n} tokens: not measured"), why.to_string());
                Ok(())
            }
        }
    });
    std::fs::remove_dir_all(&folder)?;
    compared
}

/// What PyTorch measures of the problem in `file`.
fn ask(file: &Path, device: &str) -> anyhow::Result<serde_json::Value> {
    let python = std::env::var("PYTHON").unwrap_or("python3".into());
    let mut command = Command::new(&python);
    command.arg("benches/gpu/torch_step.py").arg(file).args(["--device", device]);
    let done = command.output().with_context(|| python.clone())?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{python}: {}", said.lines().last().unwrap_or("failed"));
    Ok(serde_json::from_slice(&done.stdout)?)
}

fn report(ours: &Ours, answer: &serde_json::Value, table: &mut Table) -> anyhow::Result<()> {
    for name in ["eager fp32", "compiled bf16"] {
        let number = |key: &str| answer[name][key].as_f64().with_context(|| format!("no {key}"));
        let (p50, p99, peak) = (number("p50_ms")?, number("p99_ms")?, number("peak_mb")?);
        let what = format!("PyTorch {}, {name}, {} tokens", answer["torch"], ours.n_tokens);
        let ratio = p50 / ours.p50_ms;
        row(table, format!("{what}: p50 / p99"), format!("{p50:.3} / {p99:.3} ms"));
        row(table, format!("{what}: its time over ours"), format!("{ratio:.1}"));
        let share = ours.device_mb / peak;
        row(table, format!("{what}: memory, ours of its"), format!("{share:.2} of {peak:.0} MB"));
    }
    Ok(())
}
