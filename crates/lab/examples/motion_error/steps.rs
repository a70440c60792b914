//! The steps of a recording: two frames, and how the particles truly moved.

use std::rc::Rc;

use anyhow::{Result, ensure};
use forecloud::Error;
use forecloud::base::geometry::{Vec3, minus};
use forecloud::base::random::{draw, normal_pair, uniform};
use forecloud::engine::model::ModelConfig;
use forecloud::predict::config::PredictorConfig;
use forecloud::predict::observation::{Observation, Observer};
use forecloud::robot::kinematics::MeshSearch;
use forecloud::vision::particles::{CpuSampler, Particles};
use forecloud_bag::recording::{BodyKind, Recording, Truth, carry};

use crate::Args;

/// Side of the square blocks of pixels that holes are made of.
const HOLE_PIXELS: u32 = 8;
/// How far a frame may lie from one step back (s).
const TOLERANCE_SECS: f64 = 0.025;

/// Two frames, one step apart, and those between them.
pub struct Step {
    /// The frames at whose times motion is estimated, from one step back to now.
    pub frames: Vec<Rc<Observation>>,
    /// The links of the robot's points.
    pub links: Vec<u32>,
    /// What each particle is of, and how far it moved (m).
    pub truths: Vec<(BodyKind, Vec3)>,
    /// How far each moves in the next step (m); empty of the last one.
    pub extrapolated_motion: Vec<Vec3>,
}

/// Reads a recording, and spoils it as asked for.
pub fn read(args: &Args, recording: &Recording, truth: &Truth) -> Result<Vec<Step>> {
    let model = ModelConfig { n_motion: args.n_motion, ..ModelConfig::default() };
    let workspace = recording.place(&model.workspace)?.map(|place| place.workspace);
    let config = PredictorConfig { workspace, ..PredictorConfig::default() };
    let mut observer = Observer::new(model, config);
    observer.set_meshes(MeshSearch::default().beside(recording.bag().path()));
    if let Some(urdf) = recording.robot_description()? {
        observer.set_robot(&urdf, "world")?;
    }
    let links: Vec<u32> = observer.robot().iter().flat_map(|robot| robot.links()).collect();
    let (mut earlier, mut sampler) = (Vec::<Rc<Observation>>::new(), CpuSampler::default());
    let mut steps = Vec::new();
    recording.play(|frame, ids| {
        let mut now = Observation::default();
        let place = config.place_of(&model);
        observer.observe(&frame, (&place, model.n_particles), &mut sampler, &mut now)?;
        let clean = now.particles.clone();
        spoil(args, now.stamp.nanos(), &mut now.cloud);
        spoil(args, now.stamp.nanos(), &mut now.particles);
        // One step back: at 30 Hz three frames.
        let now = Rc::new(now);
        let late = |other: &Observation| now.stamp.secs_since(other.stamp) - model.step_secs;
        earlier.retain(|other| late(other) < TOLERANCE_SECS);
        let before = earlier.iter().position(|other| late(other) > -TOLERANCE_SECS);
        earlier.push(now.clone());
        let (Some(before), Some(ids)) = (before, ids) else { return Ok(()) };
        let Some(frames) = spread(&earlier[before..], args.in_a_row) else { return Ok(()) };
        let before = &frames[0];
        let next = now.stamp.plus_secs(now.stamp.secs_since(before.stamp));
        let (Some(poses_now), Some(poses_before)) =
            (truth.poses(now.stamp), truth.poses(before.stamp))
        else {
            return Ok(());
        };
        let poses_next = truth.poses(next);
        let (mut truths, mut extrapolated_motion) = (Vec::new(), Vec::new());
        for (p, &source) in clean.positions.iter().zip(&clean.sources) {
            if is_hole(args, now.stamp.nanos(), source) {
                continue;
            }
            let id = ids.id(source);
            let there = carry(*p, id, poses_now, poses_before);
            truths.push((truth.kind(id), minus(p, &there)));
            extrapolated_motion
                .extend(poses_next.map(|poses| minus(&carry(*p, id, poses_now, poses), p)));
        }
        steps.push(Step { frames, links: links.clone(), truths, extrapolated_motion });
        Ok::<(), Error>(())
    })?;
    ensure!(!steps.is_empty(), "no two frames with truth follow one another");
    Ok(steps)
}

/// The first, the last and others between them, `n` ways in all; none if there are too few.
fn spread(frames: &[Rc<Observation>], n: usize) -> Option<Vec<Rc<Observation>>> {
    let n_ways = frames.len() - 1;
    (n_ways >= n).then(|| (0..=n).map(|i| frames[i * n_ways / n].clone()).collect())
}

/// Adds noise and makes holes, the same for a point in each sample of a frame.
fn spoil(args: &Args, stamp_ns: i64, particles: &mut Particles) {
    let sigma_m = args.jitter_mm * 1e-3;
    let mut kept = Particles::default();
    kept.eyes.clone_from(&particles.eyes);
    kept.support_m = particles.support_m;
    for (i, &source) in particles.sources.iter().enumerate() {
        if is_hole(args, stamp_ns, source) {
            continue;
        }
        let noise = |stream| normal_pair(draw(1, stamp_ns, source.into(), stream));
        let ([x, y], [z, _]) = (noise(0), noise(1));
        let p = particles.positions[i];
        kept.positions.push([p[0] + sigma_m * x, p[1] + sigma_m * y, p[2] + sigma_m * z]);
        kept.colors.push(particles.colors[i]);
        kept.sources.push(source);
    }
    *particles = kept;
}

fn is_hole(args: &Args, stamp_ns: i64, source: u32) -> bool {
    let (camera, pixel) = (source >> 24, source & 0x00ff_ffff);
    // Recordings from simulation are 320 pixels wide; others get other blocks.
    let block = (camera << 24) | (pixel / 320 / HOLE_PIXELS) << 12 | (pixel % 320 / HOLE_PIXELS);
    args.holes > 0.0 && uniform(draw(2, stamp_ns, block.into(), 0)) < args.holes
}
