//! PyTorch on the same GPU, in the same run: same model, weights and points (`torch_step.py`).

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, ensure};
use forecloud::engine::backend::cuda::{Gpu, Precision, Rollout};
use forecloud::engine::model::{Engine, Mode, ModelConfig};
use forecloud::engine::scene::Scene;

use crate::demo::Demo;
use crate::problem::Problem;
use crate::support::Turning;
use crate::{Table, percentiles, row, single_steps};

/// Seconds that PyTorch gets for one size, compiling included.
const TIMEOUT_SECS: usize = 60;

/// Adds our times of single steps on `n_tokens` points without a robot, PyTorch's, and their ratio, or why there is
/// none.
pub fn compare(
    gpu: &Arc<Gpu>,
    demo: &Demo,
    n_tokens: usize,
    width: usize,
    table: &mut Table,
) -> anyhow::Result<()> {
    let model = ModelConfig { n_kinematic: 0, ..single_steps(width) };
    let points = Turning::of(demo.particles(n_tokens)?, &model);
    let scene =
        Scene { start: points.state.clone(), kinematic: vec![Vec::new(); 3], ..Scene::default() };
    let problem = Problem::of(points, &model)?;
    let mut rollout =
        Rollout::new(gpu.clone(), model.rollout(), &problem.weights, Precision::Half)?;
    let mut ours_ms = rollout.measure_steps(&scene, 1, 100)?;
    let ours = percentiles(&mut ours_ms);
    let what = format!("{n_tokens} points, no robot, d {width}: a step on the device, p50 / p99");
    row(table, what, ours);
    let ours = [ours_ms[ours_ms.len().div_ceil(2) - 1], rollout.device_bytes() as f64 / 1e6];
    beside(&problem, "", ours, table)
}

/// Adds what PyTorch takes for `problem` of `kind`, beside our milliseconds and megabytes, or why it
/// takes nothing.
pub fn beside(
    problem: &Problem,
    kind: &str,
    ours: [f64; 2],
    table: &mut Table,
) -> anyhow::Result<()> {
    let folder = std::env::temp_dir().join(format!("forecloud-gpu-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let answer = ask(problem, &folder.join("problem.safetensors"));
    std::fs::remove_dir_all(&folder)?;
    let about = format!("{} points{kind}", problem.n_tokens());
    match answer {
        Ok(answer) => report(&about, ours, &answer, table),
        Err(why) => row(table, format!("PyTorch, {about}: none"), format!("{why:#}")),
    }
    Ok(())
}

/// What PyTorch measures of `problem`, which goes there as `file`.
fn ask(problem: &Problem, file: &Path) -> anyhow::Result<serde_json::Value> {
    let mut engine = Engine::new(problem.config, Mode::Inference);
    let (weights, n) = (&problem.weights, problem.n_tokens());
    engine.forward(weights, &problem.features, &problem.graph()?, n)?;
    problem.write(file, Some(engine.output()))?;
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
