//! Whether the machine has the memory that training takes.

use anyhow::{Result, ensure};
use forecloud::engine::model::ModelConfig;
use forecloud_train::config::TrainConfig;
use forecloud_train::memory::least_bytes;

/// Refuses what this machine's memory can't hold `n_runs` times; where it does not tell how much it
/// has, nothing is refused.
///
/// # Errors
/// Says both and names options that take less.
pub fn must_suffice(
    config: &TrainConfig,
    model: &ModelConfig,
    recompute: bool,
    n_runs: usize,
) -> Result<()> {
    let needed = least_bytes(config, model, recompute).saturating_mul(n_runs as u64);
    let Some(there) = memory_bytes() else { return Ok(()) };
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    ensure!(
        needed <= there,
        "training needs at least {:.1} GiB of memory, and this machine has {:.1}: take a smaller \
         --batch or --width, fewer n_particles, n_history or n_blocks or a shorter curriculum in \
         --model-config, {}",
        gib(needed),
        gib(there),
        if n_runs > 1 { "or fewer --jobs" } else { "or --recompute" }
    );
    Ok(())
}

/// Memory of the machine; none where the system has no `/proc`.
fn memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_machine_holds_is_refused_with_the_options_that_take_less() {
        let (config, model) = (TrainConfig::default(), ModelConfig::default());
        must_suffice(&config, &model, false, 1).unwrap();
        let config = TrainConfig { batch: 1024, curriculum: vec![(0.0, 20)], ..config };
        let model = ModelConfig { n_particles: 1 << 20, width: 512, ..model };
        let told = must_suffice(&config, &model, false, 1);
        if memory_bytes().is_some() {
            assert!(told.unwrap_err().to_string().contains("--batch"));
        }
    }
}
