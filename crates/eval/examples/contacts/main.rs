//! Of the contacts in simulated recordings: how many are announced in time, and how often in vain. Beside a check
//! of the present cloud against the links as planned, and of a cloud that goes on as it moves.
//!
//! ```sh
//! cargo run --release -p forecloud-eval --example contacts MODEL RECORDING...
//! ```
//! Truth: distance between the robot's links, where they were measured, and the points of each body (as the
//! cameras saw them in the whole recording, carried by its true poses). A contact begins where a link and a body
//! that were apart come within [`TOUCH_M`]. It is announced where the link was in the last prediction at least
//! [`AHEAD_SECS`] before; an alarm of a link is false where that link touches nothing until [`LOOK_SECS`] after
//! its end.

mod alarms;
mod truth;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::time::Instant;

use alarms::{Alarm, Method, Score, alarms};
use forecloud::engine::model::Model;
use forecloud::predict::config::PredictorConfig;
use forecloud::predict::contacts::ContactSettings;
use forecloud::predict::occupied::OccupiedSettings;
use forecloud::predict::prediction::milliseconds_since;
use forecloud::predict::predictor::Predictor;
use forecloud::robot::kinematics::MeshSearch;
use forecloud::vision::frames::{CameraInput, CameraTopics, FramesConfig};
use forecloud_bag::recording::Recording;
use truth::{Moment, Scene};

/// A link and a body that are no farther apart touch, and were apart where they are farther than the second (m).
const TOUCH_M: f32 = 0.005;
const APART_M: f32 = 0.015;
/// How long before it begins a contact must be announced (s).
const AHEAD_SECS: f64 = 0.3;
/// How far ahead is looked: as the node by default (s).
const LOOK_SECS: f64 = 0.5;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: contacts MODEL RECORDING...";
    let model = std::sync::Arc::new(Model::load(Path::new(&arguments.next().ok_or(usage)?))?);
    let mut costs = [Vec::new(), Vec::new()];
    let mut scores: BTreeMap<(String, Method), Score> = BTreeMap::new();
    for path in arguments {
        let played = play(&model, Path::new(&path)).map_err(|e| format!("{path}: {e}"))?;
        let touches = played.scene.touches();
        let begun = &touches.begun;
        eprintln!("{path}: {} contacts in {:.1} s", begun.len(), played.secs());
        for (link, body, at) in begun {
            let by = played.announced_by(link, *at).join("; ");
            eprintln!("  {at:.2} s: {link} and {body}, announced by: {by}");
        }
        costs.iter_mut().zip(&played.costs_ms).for_each(|(all, more)| all.extend(more));
        for (method, alarms) in &played.alarms {
            for task in [&played.task[..], "all"] {
                let score = scores.entry((task.to_owned(), *method)).or_default();
                score.add(&touches, alarms, &played.times, played.secs());
            }
        }
    }
    for (what, mut costs) in ["contacts", "occupied"].into_iter().zip(costs) {
        costs.sort_by(f64::total_cmp);
        let at = |share: f64| costs.get((share * costs.len() as f64) as usize).unwrap_or(&f64::NAN);
        eprintln!("{what}: median {:.2} ms, nine of ten within {:.2} ms", at(0.5), at(0.9));
    }
    println!("| task | check | contacts | announced | false alarms a minute |");
    println!("| --- | --- | --- | --- | --- |");
    for ((task, method), score) in &scores {
        println!("| {task} | {method} | {score} |");
    }
    Ok(())
}

/// A recording with all that was announced.
struct Played {
    task: String,
    scene: Scene,
    /// Stamps of the predictions, from the first frame on (s).
    times: Vec<f64>,
    /// For each method, the alarms of each prediction.
    alarms: BTreeMap<Method, Vec<Vec<Alarm>>>,
    /// What contacts, and what occupied points, took in each frame.
    costs_ms: [Vec<f64>; 2],
}

impl Played {
    fn secs(&self) -> f64 {
        self.times.last().unwrap_or(&0.0) - self.times.first().unwrap_or(&0.0)
    }

    /// Methods that announce a contact of `link` that begins at `at`.
    fn announced_by(&self, link: &str, at: f64) -> Vec<String> {
        let Some(frame) = self.times.iter().rposition(|&t| t <= at - AHEAD_SECS + 1e-6) else {
            return vec!["too early".into()];
        };
        let announces = |(_, alarms): &(&Method, &Vec<Vec<Alarm>>)| {
            alarms[frame].iter().any(|alarm| alarm == link)
        };
        self.alarms.iter().filter(announces).map(|(method, _)| method.to_string()).collect()
    }
}

fn play(model: &std::sync::Arc<Model>, path: &Path) -> Result<Played, Box<dyn Error>> {
    let recording = open(path)?;
    let truth = recording.truth().ok_or("no truth")?;
    let config = PredictorConfig {
        horizon: (LOOK_SECS / model.config.step_secs).round() as usize,
        ..PredictorConfig::default()
    };
    let place = recording.place(&model.config.workspace)?;
    let config = place.map_or(config, |place| config.placed(place));
    let mut predictor = Predictor::new(model.clone(), config)?;
    predictor.set_meshes(MeshSearch::default().beside(path));
    predictor.set_robot(&recording.robot_description()?.ok_or("no robot")?, "world")?;
    let mut scene = Scene::new(truth);
    let mut costs_ms = [Vec::new(), Vec::new()];
    let (mut times, mut found, mut first) = (Vec::new(), BTreeMap::new(), None);
    recording.play(|frame, ids| -> Result<(), Box<dyn Error>> {
        let secs = frame.stamp.secs_since(*first.get_or_insert(frame.stamp));
        if predictor.step(&frame)?.is_none() {
            return Ok(());
        }
        let (Some(ids), Some(poses)) = (ids, truth.poses(frame.stamp)) else { return Ok(()) };
        let snapshot = predictor.snapshot()?;
        let prediction = predictor.prediction().ok_or("no prediction")?;
        let moment = Moment { secs, links: prediction.links.clone(), poses: poses.to_vec() };
        scene.add(moment, &prediction.particles, &ids);
        times.push(secs);
        let start = Instant::now();
        prediction.contacts(&ContactSettings::default());
        costs_ms[0].push(milliseconds_since(start));
        let start = Instant::now();
        prediction.occupied(LOOK_SECS, &OccupiedSettings::default())?;
        costs_ms[1].push(milliseconds_since(start));
        for (method, of_frame) in alarms(prediction, &snapshot.scene.start) {
            found.entry(method).or_insert_with(Vec::new).push(of_frame);
        }
        Ok(())
    })?;
    Ok(Played { task: truth.task.clone(), scene, times, alarms: found, costs_ms })
}

/// With the cameras that its truth names.
fn open(path: &Path) -> Result<Recording, Box<dyn Error>> {
    let glimpse = Recording::glimpse(path)?;
    let mut config = FramesConfig::default();
    let cameras = glimpse.truth().map_or(&[][..], |truth| &truth.cameras);
    if !cameras.is_empty() {
        let topics = |name: &String| CameraTopics::new(name, CameraInput::default(), true);
        config.topics.cameras = cameras.iter().map(topics).collect();
    }
    Ok(glimpse.open(config)?)
}
