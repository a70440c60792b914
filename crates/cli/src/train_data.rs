//! What `forecloud train` reads: recordings to train on, to validate with, and to remember.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use forecloud::Error;
use forecloud::engine::model::ModelConfig;
use forecloud::vision::cloud::SensorNoise;
use forecloud_train::config::{DatasetConfig, Teacher, TrainConfig};
use forecloud_train::dataset::{Dataset, OnFrame};
use forecloud_train::files::RunFiles;
use forecloud_train::flow_labels::LabelCache;
use forecloud_train::pixels::Pixels;
use forecloud_train::reading::Intake;

use super::intake::{Recordings, must_have_windows, summary};
use super::say::say;
use super::train::{Args, VALIDATION_STEPS};
use super::train_loop::bar;

/// What a run trains on, and is validated with.
pub(super) struct Data {
    pub(super) train: Dataset,
    pub(super) validation: Dataset,
    /// Recordings of what is not to be forgotten, held out.
    pub(super) known: Option<Dataset>,
    /// Steps that are validated.
    pub(super) n_steps: usize,
}

impl Data {
    /// Names of the recordings, by purpose.
    pub(super) fn names(&self) -> BTreeMap<String, Vec<String>> {
        let all = [
            ("training", Some(&self.train)),
            ("validation", Some(&self.validation)),
            ("training, to remember", self.train.remembered()),
            ("validation, to remember", self.known.as_ref()),
        ];
        let names = |data: &Dataset| data.names().collect();
        all.into_iter().filter_map(|(what, data)| Some((what.into(), data.map(names)?))).collect()
    }
}

/// Reads the recordings.
pub(super) fn data(
    args: &Args,
    config: &TrainConfig,
    model: ModelConfig,
    pixels: Option<Pixels>,
) -> Result<Data> {
    let recordings = Recordings::find(&args.recordings, args.max_recordings.is_some())?;
    recordings.must_not_hold(&args.out)?;
    let known = match &args.remember {
        Some(folder) => Some(Recordings::find(folder, false).context("--remember")?),
        None => None,
    };
    known.iter().try_for_each(|known| known.must_not_hold(&args.out))?;
    for recordings in std::iter::once(&recordings).chain(&known) {
        args.labels.iter().try_for_each(|labels| recordings.must_not_hold(labels))?;
    }
    let teacher = Teacher::from_name(&args.teacher).context("unknown --teacher")?;
    let of_settings = (config, model);
    let new = Teaching { what: "", teacher, pixels };
    let [train, validation] = load(args, &recordings, of_settings, new)?;
    let of_known = Teaching { what: KNOWN, teacher: Teacher::Auto, pixels: None };
    let known = known.map(|known| load(args, &known, of_settings, of_known)).transpose()?;
    let (train, known) = match known {
        Some([known, validation]) => (train.remember(known), Some(validation)),
        None => (train, None),
    };
    let n_steps = validation.longest(VALIDATION_STEPS);
    if n_steps < VALIDATION_STEPS {
        say(format_args!(
            "validation: no window reaches {VALIDATION_STEPS} steps, so {n_steps} are validated: \
             longer recordings reach more"
        ));
    }
    Ok(Data { train, validation, known, n_steps })
}

/// What lines about the recordings that are to be remembered begin with.
const KNOWN: &str = "to remember: ";

/// What recordings teach.
struct Teaching {
    /// What lines about them begin with.
    what: &'static str,
    teacher: Teacher,
    pixels: Option<Pixels>,
}

/// Tells what the recordings leave without effect.
fn tell_without_effect(args: &Args, train: &Dataset) {
    let (n, n_in_hindsight) = (train.n_recordings(), train.n_in_hindsight());
    if args.sets_noise() && n_in_hindsight == n {
        say("note: train.sensor_noise has no effect: no training recording is taught by its truth");
    }
    if args.labels.is_some() && n_in_hindsight == 0 && train.teacher() != Teacher::Truth {
        say("note: --labels has no effect: no training recording is taught by hindsight");
    }
}

/// How recordings are read to train on, and to validate with.
pub fn dataset_configs(
    strength: f32,
    max_horizon: usize,
    teacher: Teacher,
    seed: u64,
) -> [DatasetConfig; 2] {
    let noise = SensorNoise { strength, ..SensorNoise::default() };
    // Validation is the same for all seeds.
    let fixed = DatasetConfig {
        max_horizon,
        noise,
        varies_noise: false,
        teacher,
        ..DatasetConfig::default()
    };
    let noise = SensorNoise { seed, ..noise };
    [DatasetConfig { noise, varies_noise: true, ..fixed }, fixed]
}

/// Recordings to train on and to validate with.
fn load(
    args: &Args,
    recordings: &Recordings,
    (config, model): (&TrainConfig, ModelConfig),
    Teaching { what, teacher, pixels }: Teaching,
) -> Result<[Dataset; 2]> {
    let tell = |line: String| say(format_args!("{what}{line}"));
    let max_horizon = config.reach(&model).max(VALIDATION_STEPS);
    let [varied, fixed] = dataset_configs(config.sensor_noise, max_horizon, teacher, args.seed);
    let (frames, meshes) = (args.topics.config()?, args.topics.meshes());
    let bar = bar(recordings.len() as u64, "reading {wide_bar} {pos} of {len} recordings{msg}");
    // A long recording is one: its frames show that it goes on.
    let (n_frames, of_frames) = (AtomicU64::new(0), bar.clone());
    let on_frame: OnFrame = Arc::new(move || {
        let n = 1 + n_frames.fetch_add(1, Ordering::Relaxed);
        if n.is_multiple_of(10) {
            of_frames.set_message(format!(", {n} frames read or labelled"));
        }
    });
    let labels = LabelCache::new(args.labels.as_ref().unwrap_or(&RunFiles::new(&args.out).labels));
    let empty = |config| {
        let data = Dataset::new(config, model, frames.clone());
        let data = data.with_meshes(meshes.clone()).with_labels(labels.clone());
        data.with_progress(Arc::clone(&on_frame))
    };
    let (mut train, mut validation) = (empty(varied), empty(fixed));
    if let Some(pixels) = &pixels {
        train = train.with_pixels(pixels.clone());
    }
    let max_recordings = args.max_recordings;
    let mut intakes = [
        Intake { split: "train", takes_unsaid: true, max_recordings, data: &mut train },
        Intake { split: "val", takes_unsaid: false, max_recordings: None, data: &mut validation },
    ];
    let propose = |error: &Error| args.topics.proposal(error, "train");
    let told = recordings.read(&mut intakes, propose, || bar.inc(1));
    bar.finish_and_clear();
    told.into_iter().for_each(tell);
    if let Some(pixels) = &pixels {
        pixels.must_have_kept().context("--video: pictures are kept in --out while it runs")?;
    }
    must_have_windows("training", "train", &train)?;
    if pixels.is_some() {
        let n = train.n_pictured();
        ensure!(
            n > 0,
            "--video: no frame with colour and depth images, which pictures are made of (clouds have none)"
        );
        tell(format!("pixels: pictures of {n} frames"));
    }
    args.hold_out(&mut train, &mut validation)?.into_iter().for_each(tell);
    tell_without_effect(args, &train);
    for (purpose, split, data) in
        [("training", "train", &train), ("validation", "val", &validation)]
    {
        summary(purpose, data).into_iter().for_each(tell);
        must_have_windows(purpose, split, data)?;
    }
    Ok([train, validation])
}
