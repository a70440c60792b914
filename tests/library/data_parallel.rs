//! Training on several machines, here several trainers in one process: the model is that of one, to the
//! bit, however many there are, whoever joins or leaves between steps.

use std::ops::Range;
use std::path::Path;

use forecloud::engine::model::ModelConfig;
use forecloud::vision::frames::FramesConfig;
use forecloud_train::config::{DatasetConfig, TrainConfig};
use forecloud_train::dataset::Dataset;
use forecloud_train::trainer::{StepReport, Trainer, WindowLoss};

fn model() -> ModelConfig {
    ModelConfig {
        width: 16,
        n_heads: 2,
        n_blocks: 1,
        n_particles: 256,
        n_history: 128,
        n_motion: 512,
        n_kinematic: 32,
        ..ModelConfig::default()
    }
}

fn config() -> TrainConfig {
    let curriculum = vec![(0.0, 1), (0.5, 2)];
    TrainConfig { steps: 6, batch: 5, warm_up: 2, curriculum, ..TrainConfig::default() }
}

fn data() -> Dataset {
    let mut data = Dataset::new(DatasetConfig::default(), model(), FramesConfig::default());
    let path = Path::new(crate::ROOT).join("tests/data/tiny_push");
    assert!(data.add(&path, "test").unwrap());
    data
}

fn trainer() -> Trainer {
    Trainer::new(config(), model()).unwrap()
}

/// The windows of worker `index` of `n`.
fn share(index: usize, n: usize) -> Range<usize> {
    let batch = config().batch;
    index * batch / n..(index + 1) * batch / n
}

/// One step of all workers, each on its own windows.
fn step(workers: &mut [Trainer], data: &Dataset) -> StepReport {
    let n = workers.len();
    let mut losses: Vec<WindowLoss> = Vec::new();
    // The last one first: who is ready when does not matter.
    for (index, worker) in workers.iter_mut().enumerate().rev() {
        let own = worker.compute(data, share(index, n)).unwrap();
        losses.splice(0..0, own);
    }
    let mut sum = vec![0.0; workers[0].n_weights()];
    workers.iter().for_each(|worker| worker.add_gradients(&mut sum).unwrap());
    let apply = |worker: &mut Trainer| worker.apply(&mut sum.clone(), &losses).unwrap();
    let reports: Vec<StepReport> = workers.iter_mut().map(apply).collect();
    let first = workers[0].fingerprint();
    assert!(workers.iter().all(|worker| worker.fingerprint() == first));
    reports[0]
}

#[test]
fn the_model_is_the_same_to_the_bit_on_1_2_and_4_workers() {
    let data = data();
    let mut alone = trainer();
    let reports: Vec<StepReport> = (0..6).map(|_| alone.step(&data).unwrap()).collect();
    // One more than there are windows, too: it has none.
    for n in [1, 2, 4, 6] {
        let mut workers: Vec<Trainer> = (0..n).map(|_| trainer()).collect();
        for report in &reports {
            let found = step(&mut workers, &data);
            assert_eq!(found.loss_mm.to_bits(), report.loss_mm.to_bits(), "{n} workers");
            assert_eq!(found.gradient_norm.to_bits(), report.gradient_norm.to_bits());
        }
        assert_eq!(workers[0].fingerprint(), alone.fingerprint(), "{n} workers");
        assert_eq!(workers[0].model().unwrap().hash, alone.model().unwrap().hash);
    }
}

#[test]
fn workers_join_and_leave_and_all_die_and_the_run_is_the_same() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let checkpoint = folder.path().join("checkpoint.safetensors");
    let resume = || Trainer::resume(&checkpoint, &config(), &model()).unwrap();
    let mut alone = trainer();
    for _ in 0..6 {
        alone.step(&data).unwrap();
    }
    let mut workers = vec![trainer(), trainer()];
    step(&mut workers, &data);
    // Two join.
    workers[0].save(&checkpoint).unwrap();
    workers.extend([resume(), resume()]);
    step(&mut workers, &data);
    // The first one dies in the middle of a step: the others take that step again.
    workers[1].compute(&data, 0..2).unwrap();
    workers.remove(0);
    step(&mut workers, &data);
    // All die in the middle of a step.
    workers[0].save(&checkpoint).unwrap();
    workers[0].compute(&data, 0..5).unwrap();
    let mut workers = vec![resume()];
    for _ in 0..3 {
        step(&mut workers, &data);
    }
    assert_eq!(workers[0].fingerprint(), alone.fingerprint());
    let ends = [&alone, &workers[0]].map(|trainer| {
        trainer.save(&checkpoint).unwrap();
        std::fs::read(&checkpoint).unwrap()
    });
    assert!(ends[0] == ends[1], "checkpoints differ");
}

#[test]
fn what_is_no_step_is_refused() {
    let (data, mut trainer) = (data(), trainer());
    let told = trainer.compute(&data, 3..6).unwrap_err().to_string();
    assert!(told.contains("windows of a training step"), "{told}");
    let losses = trainer.compute(&data, 0..2).unwrap();
    let mut sum = vec![0.0; trainer.n_weights()];
    trainer.add_gradients(&mut sum).unwrap();
    assert!(trainer.apply(&mut sum, &losses).is_err(), "windows are missing");
    assert!(trainer.add_gradients(&mut sum[1..]).is_err());
    let all = trainer.compute(&data, 0..5).unwrap();
    sum[0] = f32::NAN;
    let told = trainer.apply(&mut sum, &all).unwrap_err().to_string();
    assert!(told.contains("gradient of a training step"), "{told}");
    assert_eq!(trainer.step_index(), 0);
}
