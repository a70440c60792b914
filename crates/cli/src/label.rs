//! `forecloud label`: finds out by hindsight where points of recordings went, for trainings to come.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::builder::PossibleValuesParser;
use forecloud::Error;
use forecloud::engine::model::{Model, ModelConfig};
use forecloud_bag::bag::recordings_below;
use forecloud_bag::outputs::Outputs;
use forecloud_bag::recording::Recording;
use forecloud_bag::shards::{Manifest, Outcome as Came, Shard, ShardFolder, fingerprint};
use forecloud_train::config::{DatasetConfig, Teacher, TrainConfig};
use forecloud_train::dataset::Dataset;
use forecloud_train::flow_labels::{LabelCache, MISSING};
use forecloud_train::rig::Rig;
use serde::{Deserialize, Serialize};

use super::intake::recordings as count;
use super::model_config::ModelConfigArgs;
use super::numbers::within;
use super::outcome::Outcome;
use super::rig_lines::rig_lines;
use super::say::{name_first, say};
use super::threads;
use super::topics::ReadArgs;
use super::train_data::dataset_configs;
use super::train_loop::bar;

/// Label recordings by hindsight, for `forecloud train --labels`.
#[derive(clap::Args)]
#[command(after_help = "\
Hindsight finds in later frames where the points of a recording without truth went. `forecloud train` does \
this when it first reads a recording; this command does it beforehand, on as many machines as there are. \
Give it the same --from or --model-config, --teacher, --seed and topics as the training: labels are found \
again by the content of the clouds that they belong to.

Shards may share one folder. A second run does only what is missing.

Exit codes:
  0  all recordings are labelled, or need no labels
  1  an error
  2  wrong arguments
  3  recordings were skipped

Examples:
  forecloud label my_bags --labels labels
  forecloud label my_bags --labels labels --shard 2/8
  forecloud merge labels
  forecloud train my_bags --labels labels --out runs/mine --from models/small.safetensors")]
pub struct Args {
    /// Recordings, or folders of them (rosbag2 folders, .mcap and .db3 files)
    #[arg(required = true, value_name = "PATH")]
    recordings: Vec<PathBuf>,
    /// Folder that keeps the labels; created if needed
    #[arg(long, value_name = "DIR")]
    labels: PathBuf,
    /// Process shard I of N of the recordings (I from 1), chosen by name alone
    #[arg(long, value_name = "I/N", default_value_t = Shard::WHOLE)]
    shard: Shard,
    /// Source of the training targets, as in training. `auto`: truth if there is one, which needs no
    /// labels, else hindsight; `hindsight` and `video`: hindsight for all
    #[arg(long, default_value = "auto", value_parser = PossibleValuesParser::new(["auto", "hindsight", "video"]))]
    teacher: String,
    /// The model that training will start from, for its sizes
    #[arg(long, value_name = "MODEL")]
    from: Option<PathBuf>,
    /// The training's seed, which also draws the noise of recordings with truth
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Threads to work on [default: all cores]
    #[arg(long, value_name = "N", value_parser = within(1..=usize::MAX))]
    threads: Option<usize>,
    #[command(flatten)]
    file: ModelConfigArgs,
    #[command(flatten)]
    pub(super) topics: ReadArgs,
}

/// What came of a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Labelled {
    /// Its labels: names of the files.
    Labels(Vec<String>),
    /// It has truth, which teaches better.
    Truth,
    /// It is neither for training nor for validation, but of this split.
    Split(String),
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads::bounded(args.threads));
    pool.build().context("cannot start threads")?.install(|| label(args))
}

fn label(args: &Args) -> Result<Outcome> {
    args.topics.check()?;
    let model = model(args)?;
    let mut recordings = Vec::new();
    for path in &args.recordings {
        let found = recordings_below(path).context("no recordings")?;
        for (path, error) in &found.left_out {
            say(format_args!("left out: {}", name_first(path, &error.to_string())));
        }
        recordings.extend(found.recordings);
    }
    let teacher = Teacher::from_name(&args.teacher).context("unknown --teacher")?;
    let frames = args.topics.config()?;
    let noise = args.file.train().sensor_noise.unwrap_or(TrainConfig::default().sensor_noise);
    let configs = dataset_configs(noise, 1, teacher, args.seed);
    let terms = serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"), "model": model, "teacher": args.teacher,
        "seed": args.seed, "sensor_noise": noise, "frames": frames,
    });
    let outputs = Outputs::default().protect(&recordings);
    let manifest = Manifest::new("label", args.shard, args.from.as_deref(), &recordings, &terms)?;
    let folder = ShardFolder::open(&args.labels, &outputs, manifest)?;
    let cache = LabelCache::new(&args.labels);
    let meshes = args.topics.meshes();
    let empty = |config: DatasetConfig| {
        let data = Dataset::new(config, model, frames.clone());
        data.with_meshes(meshes.clone()).with_labels(cache.clone())
    };
    let own = folder.recordings();
    let (mut n_before, mut n_skipped) = (0, 0u64);
    let (mut rigs, mut proposed) = (Vec::new(), None);
    let bar = bar(own.len() as u64, "labelling {wide_bar} {pos} of {len} recordings, {eta} left");
    for path in &own {
        let print = fingerprint(path);
        let before = print.as_ref().ok().and_then(|print| folder.done(path, print));
        let before = before.and_then(|done| serde_json::from_value::<Labelled>(done).ok());
        if before.is_some_and(|done| done.problem(std::slice::from_ref(&args.labels)).is_none()) {
            n_before += 1;
        } else {
            let came = match label_one(path, teacher, configs.map(empty)) {
                Ok((labelled, found)) => {
                    rigs.extend(found);
                    Came::Result(serde_json::to_value(labelled)?)
                }
                // It would be the same with all that follow.
                Err(error) if is_out_of_room(&error) => {
                    return Err(error).with_context(|| {
                        let n_done = bar.position() - n_skipped;
                        format!(
                            "{} done, and the same command does the rest",
                            count(n_done as usize)
                        )
                    });
                }
                Err(error) => {
                    bar.suspend(|| {
                        say(format_args!("skipped: {}", name_first(path, &error.to_string())))
                    });
                    proposed = args.topics.proposal(&error, "label").or(proposed);
                    n_skipped += 1;
                    Came::Skipped(error.to_string())
                }
            };
            folder.keep(path, &print.unwrap_or_default(), came)?;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    proposed.into_iter().chain(rig_lines(&rigs)).for_each(say);
    let (shard, n, labels) = (args.shard, own.len(), args.labels.display());
    let n_now = n - n_before - n_skipped as usize;
    say(format_args!(
        "shard {shard}: {} looked at, {n_before} already done, {n_skipped} skipped: \
         {labels}, for `forecloud train --labels`",
        count(n_now)
    ));
    Ok(if n_skipped == 0 { Outcome::Done } else { Outcome::Partial })
}

/// The sizes that count for labels: those that frames are thinned to, and the box.
fn model(args: &Args) -> Result<ModelConfig> {
    match &args.from {
        Some(_) if args.file.sets_model() => {
            let told = "\"model\": a training --from a model keeps its settings; leave this out";
            Err(args.file.refused(&told))
        }
        Some(path) => Ok(Model::load(path).context("--from")?.config),
        None => args.file.model(ModelConfig::default(), [None; 2]),
    }
}

/// Labels one recording, as a training or a validation will read it; with what was found of its rig.
fn label_one(
    path: &Path,
    teacher: Teacher,
    [varied, fixed]: [Dataset; 2],
) -> forecloud::Result<(Labelled, Vec<Rig>)> {
    let glimpse = Recording::glimpse(path)?;
    let split = glimpse.truth().map_or(String::new(), |truth| truth.split.clone());
    if glimpse.truth().is_some() && teacher.takes_truth() {
        return Ok((Labelled::Truth, Vec::new()));
    }
    let mut data = match split.as_str() {
        "train" | "" => varied,
        "val" => fixed,
        _ => return Ok((Labelled::Split(split), Vec::new())),
    };
    let frames = data.frames().clone();
    data.add_recording(&glimpse.open(frames)?)?;
    let labels = Labelled::Labels(data.label_files().map(str::to_owned).collect());
    Ok((labels, data.rigs().cloned().collect()))
}

impl Labelled {
    /// What is wrong with the files that it tells of, which may lie in any of the folders; none if they
    /// are there and whole.
    fn problem(&self, folders: &[PathBuf]) -> Option<String> {
        let Self::Labels(names) = self else { return None };
        names.iter().find_map(|name| {
            let checks = folders.iter().map(|folder| LabelCache::new(folder).check(name));
            let mut problem = None;
            for check in checks {
                match check {
                    Ok(()) => return None,
                    // Where it is but damaged says more than where it is not.
                    Err(why) if problem.is_none() || why != MISSING => problem = Some(why),
                    Err(_) => {}
                }
            }
            problem.map(|why| format!("{name} {why}"))
        })
    }
}

/// Whether there is no room for what comes next either.
fn is_out_of_room(error: &Error) -> bool {
    use std::io::ErrorKind;
    let full = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::FileTooLarge];
    matches!(error, Error::Io { cause, .. } if full.contains(&cause.kind()))
}

/// What shards of labels in these folders come to, for people; labels that are not there any more, or not
/// whole, don't count.
pub fn summary(outcomes: &[(PathBuf, Came)], folders: &[PathBuf]) -> Result<(String, Outcome)> {
    let (mut text, mut counts) = (String::new(), BTreeMap::<String, usize>::new());
    let mut is_whole = true;
    for (path, came) in outcomes {
        let what = match came {
            Came::Skipped(reason) => {
                text += &format!("skipped    {}\n", name_first(path, reason));
                "skipped".to_owned()
            }
            Came::Result(result) => {
                let labelled = Labelled::deserialize(result)?;
                match (labelled.problem(folders), labelled) {
                    (Some(problem), _) => {
                        let told = format!("{problem}: label it again");
                        text += &format!("lost       {}\n", name_first(path, &told));
                        "lost".into()
                    }
                    (None, Labelled::Labels(_)) => "labelled".into(),
                    (None, Labelled::Truth) => "with truth, which needs no labels".into(),
                    (None, Labelled::Split(split)) => format!("of split '{split}', left out"),
                }
            }
        };
        is_whole &= !["skipped", "lost"].contains(&&*what);
        *counts.entry(what).or_default() += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(what, n)| format!("{n} {what}")).collect();
    text += &format!("recordings {}: {}\n", outcomes.len(), counts.join(", "));
    Ok((text, if is_whole { Outcome::Done } else { Outcome::Partial }))
}
