//! How well objects are followed: their numbers held against the bodies of simulated recordings, by task, beside
//! a tracker that gives each cluster the number of the nearest centre in the frame before.
//!
//!   cargo run --release -p forecloud-lab --example object_tracks -- recordings

mod centroids;
mod findings;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use centroids::Centroids;
use clap::Parser;
use findings::{Bodies, Findings};
use forecloud::Error;
use forecloud::engine::model::Model;
use forecloud::predict::config::PredictorConfig;
use forecloud::predict::predictor::Predictor;
use forecloud::robot::kinematics::MeshSearch;
use forecloud::vision::frames::FramesConfig;
use forecloud_bag::bag::recordings_below;
use forecloud_bag::recording::Recording;

/// Prints two rows for each task: Forecloud's numbers, and those of nearest centres.
#[derive(Parser)]
struct Args {
    /// Folder of recordings with truth
    folder: PathBuf,
    /// The model
    #[arg(long, default_value = "models/small.safetensors")]
    model: PathBuf,
    /// Recordings of each task at most
    #[arg(long, default_value_t = usize::MAX)]
    episodes: usize,
    /// Only this task
    #[arg(long)]
    task: Option<String>,
    /// Print each change of a number
    #[arg(long)]
    tell: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let model = Arc::new(Model::load(&args.model)?);
    let mut found: BTreeMap<String, [Findings; 2]> = BTreeMap::new();
    for path in recordings_below(&args.folder)?.recordings {
        let recording = Recording::open(&path, FramesConfig::default())?;
        let Some(truth) = recording.truth() else { continue };
        if args.task.as_ref().is_some_and(|task| *task != truth.task) {
            continue;
        }
        let findings = found.entry(truth.task.clone()).or_default();
        if findings[0].n_recordings < args.episodes {
            measure(&args, &model, &recording, findings)
                .with_context(|| path.display().to_string())?;
        }
    }
    ensure!(!found.is_empty(), "no recording with truth in {}", args.folder.display());
    println!(
        "| task | numbers by | recordings | minutes of an object in view | found (%) | switches a minute | purity \
         (%) | pieces a body | numbered, of no object (%) |"
    );
    println!("|{}", " --- |".repeat(9));
    let mut all = [Findings::default(), Findings::default()];
    for (task, findings) in &found {
        for ((findings, all), name) in findings.iter().zip(&mut all).zip(["Forecloud", "centres"]) {
            findings.print(task, name);
            all.merge(findings);
        }
    }
    for (all, name) in all.iter().zip(["Forecloud", "centres"]) {
        all.print("all", name);
    }
    Ok(())
}

/// Follows the objects of one more recording.
fn measure(
    args: &Args,
    model: &Arc<Model>,
    recording: &Recording,
    findings: &mut [Findings; 2],
) -> Result<()> {
    let Some(truth) = recording.truth() else { return Ok(()) };
    let place = recording.place(&model.config.workspace)?;
    let config = PredictorConfig::default();
    let config = place.map_or(config, |place| config.placed(place));
    let mut predictor = Predictor::new(model.clone(), config)?;
    predictor.set_meshes(MeshSearch::default().beside(recording.bag().path()));
    if let Some(urdf) = recording.robot_description()? {
        predictor.set_robot(&urdf, "world")?;
    }
    let bodies = Bodies::new(truth);
    let mut centroids = Centroids::default();
    findings.iter_mut().for_each(|findings| findings.next_recording());
    recording.play(|frame, ids| {
        let Some(ids) = ids else { return Ok(()) };
        let prediction = match predictor.step(&frame) {
            Ok(Some(prediction)) => prediction,
            Ok(None) => return Ok(()),
            Err(error) => {
                eprintln!("{error}");
                return Ok(());
            }
        };
        let of = prediction.particles.sources.iter().map(|&source| bodies.of(ids.id(source)));
        let of: Vec<_> = of.collect();
        let secs = prediction.stamp.nanos() as f64 * 1e-9;
        let simple = centroids.follow(prediction, secs);
        for (at, (findings, numbers)) in
            findings.iter_mut().zip([&prediction.objects.number_of, &simple]).enumerate()
        {
            let told = findings.add(secs, &of, numbers, &prediction.objects.kinds);
            if args.tell && at == 0 {
                told.iter().for_each(|change| {
                    println!("{:.2} s: {} {change}", secs, recording.bag().path().display());
                });
            }
        }
        Ok::<(), Error>(())
    })?;
    Ok(())
}
