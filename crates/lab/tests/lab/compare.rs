//! A comparison on a small recording: the plan, interruptions, equal weights, what fails is named.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use forecloud::engine::model::{Layout, ModelConfig};
use forecloud::vision::frames::FramesConfig;
use forecloud_train::compare::{Comparison, Data, Plan, Settings, Suite, Table, Watch};
use forecloud_train::config::{DatasetConfig, TrainConfig};
use forecloud_train::dataset::Dataset;

fn model() -> ModelConfig {
    ModelConfig {
        width: 16,
        n_heads: 2,
        n_blocks: 1,
        n_particles: 256,
        n_history: 64,
        n_motion: 1024,
        n_kinematic: 32,
        ..ModelConfig::default()
    }
    // The recording has no windows of longer passes.
    .with_steps_per_pass(1)
}

fn settings(suite: Suite) -> Settings {
    Settings {
        suite: "of a test".into(),
        variants: suite.variants(model()),
        budget_secs: 0.2,
        steps: None,
        seeds: vec![0, 1],
        learning_rates: vec![1e-3, 3e-3],
        tuning_share: 0.5,
        train: TrainConfig {
            curriculum: vec![(0.0, 1), (0.5, 2)],
            second_looks: 0.0,
            ..TrainConfig::default()
        },
        data: DatasetConfig::default(),
        topics: [("-p robot".to_owned(), "optional".to_owned())].into(),
        test_split: "test".into(),
        validations: 3,
        validation_steps: 2,
        validation_windows: 4,
        test_windows: 4,
        pilot_rounds: 1,
    }
}

/// The recording, which is a test one, for all purposes.
fn data() -> Data {
    let path = Path::new(crate::ROOT).join("tests/data/tiny_push");
    let read = |max_horizon| {
        let config = DatasetConfig { max_horizon, ..DatasetConfig::default() };
        // Passes of two steps look again after one: what all variants reach.
        let model = model().with_steps_per_pass(2);
        let mut data = Dataset::new(config, model, FramesConfig::default());
        assert!(data.add(&path, "test").unwrap());
        data
    };
    let [train, validation, test] = settings(Suite::Layers).horizons();
    Data { train: read(train), validation: read(validation), test: read(test) }
}

/// Stops after so many calls of `advance`.
struct Patience(AtomicUsize, usize);

impl Patience {
    fn until(n: usize) -> Self {
        Self(AtomicUsize::new(0), n)
    }
}

impl Watch for Patience {
    fn stage(&self, _: &str) {}

    fn advance(&self, secs: f64) {
        assert!(secs >= 0.0);
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn stops(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= self.1
    }
}

fn patient() -> Patience {
    Patience::until(usize::MAX)
}

/// Opens a comparison whose runs take 6 steps and whose tries 3.
fn open_short(folder: &Path, settings: &Settings, data: &Data) -> Comparison {
    let open = || Comparison::open(folder.to_owned(), settings.clone(), data, &patient());
    let mut plan: Plan = open().unwrap().unwrap().plan().clone();
    for variant in &mut plan.variants {
        (variant.steps, variant.tuning_steps) = (6, 3);
    }
    std::fs::write(folder.join("plan.json"), serde_json::to_vec(&plan).unwrap()).unwrap();
    open().unwrap().unwrap()
}

/// What must not depend on when, and how often, a comparison was stopped.
fn lasting(table: &Table) -> String {
    let mut value = serde_json::to_value(table).unwrap();
    for row in value["rows"].as_array_mut().unwrap() {
        row.as_object_mut().unwrap().remove("cpu_secs").unwrap();
    }
    for run in value["runs"].as_array_mut().unwrap() {
        let outcome = run["outcome"].as_object_mut().unwrap();
        outcome.remove("cpu_secs").unwrap();
        for point in outcome["curve"].as_array_mut().unwrap() {
            point.as_object_mut().unwrap().remove("cpu_secs").unwrap();
        }
    }
    value.to_string()
}

#[test]
fn a_comparison_stopped_again_and_again_gives_the_table_of_one_that_was_not() {
    let (data, settings) = (data(), settings(Suite::Layers));
    let [whole, broken] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let comparison = open_short(whole.path(), &settings, &data);
    let table = comparison.run(&data, 2, &patient()).unwrap().unwrap();
    assert_eq!((table.rows.len(), table.runs.len(), table.failures.len()), (4, 8, 0));

    std::fs::copy(whole.path().join("plan.json"), broken.path().join("plan.json")).unwrap();
    let mut n_stops = 0;
    let resumed = loop {
        let comparison =
            Comparison::open(broken.path().to_owned(), settings.clone(), &data, &patient());
        // Each time a little longer, for what is done counts too.
        let patience = Patience::until(9 + 5 * n_stops);
        if let Some(table) = comparison.unwrap().unwrap().run(&data, 2, &patience).unwrap() {
            break table;
        }
        n_stops += 1;
        assert!(n_stops < 100);
    };
    assert!(n_stops > 3, "{n_stops}");
    assert_eq!(lasting(&resumed), lasting(&table));
    // Once more: nothing is left to do.
    let again = comparison.run(&data, 1, &patient()).unwrap().unwrap();
    assert_eq!(again, table);

    for row in &table.rows {
        assert!([1e-3, 3e-3].contains(&row.learning_rate.unwrap()));
        assert!(row.predict_ms > 0.0 && row.train_steps_per_sec > 0.0);
        assert!(row.ratio[0].mean.unwrap() > 0.0 && row.ratio[0].deviation.unwrap() > 0.0);
        assert!(row.ratio[2].mean.is_none(), "no window of the recording reaches 10 steps");
    }
    // Seeds and variants are models of their own, on the same test points.
    let mut hashes: Vec<&str> = table.runs.iter().map(|run| &*run.outcome.model_hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 8);
    let nothing = |i: usize| table.runs[i].outcome.test.as_ref().unwrap().nothing_mm[0].unwrap();
    assert!((1..8).all(|i| nothing(i) == nothing(0)));
    let files = ["comparison.csv", "comparison.svg", "grf/seed_1/model.safetensors"];
    assert!(files.iter().all(|file| whole.path().join(file).is_file()));
    let csv = std::fs::read_to_string(whole.path().join("comparison.csv")).unwrap();
    let columns: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
    assert_eq!(columns, [25; 9]);
    let text = table.to_string();
    assert!(
        ["grf", "message_passing", "none", "ms per predicted step"]
            .iter()
            .all(|w| text.contains(w))
    );
}

#[test]
fn a_plan_gives_each_variant_the_steps_of_its_budget_and_as_many_weights() {
    let (data, settings) = (data(), settings(Suite::Layers));
    let folder = tempfile::tempdir().unwrap();
    let open = |settings: &Settings| {
        Comparison::open(folder.path().to_owned(), settings.clone(), &data, &patient())
    };
    let plan = open(&settings).unwrap().unwrap().plan().clone();
    for (variant, planned) in settings.variants.iter().zip(&plan.variants) {
        let secs = planned.speed.step_secs(&settings.train.curriculum);
        let all = planned.steps as f64 * secs;
        assert!(all <= 0.2 || planned.steps == 1, "{all} s");
        assert!(all + secs > 0.2);
        assert!(planned.tuning_steps <= planned.steps);
        assert_eq!(planned.parameters, Layout::new(variant.model.interlacer()).n_params());
        let difference = planned.parameters as f64 / plan.variants[0].parameters as f64 - 1.0;
        assert!(difference.abs() < 0.03, "{}: {difference}", variant.name);
    }
    // The plan stands: it is not measured again, nor taken for other settings.
    assert_eq!(open(&settings).unwrap().unwrap().plan(), &plan);
    let other = Settings { budget_secs: 0.3, ..settings.clone() };
    let message = open(&other).err().unwrap().to_string();
    assert!(message.contains("plan.json"), "{message}");
    assert!(message.contains("(budget_secs: 0.2 there, 0.3 here)"), "{message}");
    // Nor for other topics of the same recordings.
    let topics: BTreeMap<_, _> = [("-p robot".to_owned(), "none".to_owned())].into();
    let other = Settings { topics, ..settings.clone() };
    let message = open(&other).err().unwrap().to_string();
    assert!(
        message.contains("(-p robot: optional there, none here): choose another --out"),
        "{message}"
    );
    let stopped = Comparison::open(folder.path().join("b"), settings, &data, &Patience::until(0));
    assert!(stopped.unwrap().is_none());
    assert!(!folder.path().join("b").exists());
}

/// With as many steps for all, those who are slower take longer; each rolls out whole passes.
#[test]
fn steps_that_are_asked_for_are_those_of_all() {
    let data = data();
    let mut settings = Settings { steps: Some(6), ..settings(Suite::Chunks) };
    settings.variants.truncate(2);
    settings.train.curriculum = vec![(0.0, 1), (0.5, 2)];
    let folder = tempfile::tempdir().unwrap();
    let comparison =
        Comparison::open(folder.path().to_owned(), settings.clone(), &data, &patient());
    let comparison = comparison.unwrap().unwrap();
    let plan = comparison.plan();
    for (i, planned) in plan.variants.iter().enumerate() {
        assert_eq!((planned.steps, planned.tuning_steps), (6, 3));
        let train = settings.train_of(&settings.variants[i]);
        let secs = 6.0 * planned.speed.step_secs(&train.curriculum);
        assert!(secs > 0.0 && (plan.run_secs(i) - secs).abs() < 1e-9);
    }
    let lengths = |i: usize| settings.train_of(&settings.variants[i]).curriculum;
    assert_eq!((lengths(0), lengths(1)), (vec![(0.0, 1), (0.5, 2)], vec![(0.0, 2), (0.5, 2)]));
    let table = comparison.run(&data, 2, &patient()).unwrap().unwrap();
    assert!(table.runs.iter().all(|run| run.outcome.steps == 6));
    assert!(table.to_string().contains("6 steps per run"));
    let none = Settings { steps: Some(0), ..settings };
    let folder = folder.path().join("none");
    let error = Comparison::open(folder, none, &data, &patient()).err().unwrap();
    assert!(error.to_string().contains("compare.steps"), "{error}");
}

#[test]
fn what_fails_is_named_and_the_others_go_on() {
    let data = data();
    let folder = tempfile::tempdir().unwrap();
    // A rate at which nothing is learned is not chosen.
    let settings = Settings { learning_rates: vec![1.0, 1e-3], ..settings(Suite::Layers) };
    let comparison = open_short(folder.path(), &settings, &data);
    // Where this variant's runs should be is something else.
    std::fs::write(folder.path().join("linear"), "not a folder").unwrap();
    let table = comparison.run(&data, 2, &patient()).unwrap().unwrap();
    assert_eq!(table.failures.len(), 1, "{:?}", table.failures);
    assert!(table.failures[0].starts_with("linear, all learning rates: "), "{:?}", table.failures);
    assert!(table.to_string().contains("failed: linear"));
    let rates: Vec<Option<f32>> = table.rows.iter().map(|row| row.learning_rate).collect();
    assert_eq!(rates, [Some(1e-3), Some(1e-3), None, Some(1e-3)]);
    assert_eq!(table.rows.iter().map(|row| row.n_seeds).collect::<Vec<_>>(), [2, 2, 0, 2]);
    // With the cause away, the same command does what is left.
    std::fs::remove_file(folder.path().join("linear")).unwrap();
    let table = comparison.run(&data, 2, &patient()).unwrap().unwrap();
    assert_eq!((table.failures.len(), table.runs.len()), (0, 8));

    let named = |settings: Settings| {
        let folder = tempfile::tempdir().unwrap();
        let outcome = Comparison::open(folder.path().to_owned(), settings, &data, &patient());
        outcome.err().unwrap().to_string()
    };
    let mut invalid = settings.clone();
    invalid.variants[1].model.k = 0;
    assert!(named(invalid).contains("variant message_passing"));
    let mut larger = settings.clone();
    larger.variants[3].model.n_particles = 2048;
    let message = named(larger);
    assert!(message.contains("variant none") && message.contains("n_particles"), "{message}");
    assert!(named(Settings { seeds: vec![1, 1], ..settings.clone() }).contains("seeds"));
    for rate in [f32::NAN, 0.0, -1.0, f32::INFINITY] {
        let told = named(Settings { learning_rates: vec![1e-3, rate], ..settings.clone() });
        assert!(told.contains("compare.learning_rates") && told.contains("..=1"), "{told}");
    }
    for secs in [f64::NAN, 0.0, f64::INFINITY] {
        assert!(named(Settings { budget_secs: secs, ..settings.clone() }).contains("budget_secs"));
    }
    assert!(named(Settings { validations: 0, ..settings.clone() }).contains("validations"));
    let train = TrainConfig { batch: 0, ..settings.train.clone() };
    assert!(named(Settings { train, ..settings }).contains("train.batch"));
}

#[test]
fn every_suite_runs() {
    let data = data();
    for (name, suite) in Suite::ALL {
        let mut settings = settings(suite);
        (settings.seeds, settings.learning_rates) = (vec![3], vec![1e-3]);
        // The recording has no windows of longer passes.
        settings.variants.retain(|variant| variant.model.steps_per_pass <= 2);
        let folder = tempfile::tempdir().unwrap();
        let comparison = open_short(folder.path(), &settings, &data);
        let table = comparison.run(&data, 2, &patient()).unwrap().unwrap();
        assert_eq!(table.failures, Vec::<String>::new(), "{name}");
        assert_eq!(table.runs.len(), settings.variants.len(), "{name}");
    }
}
