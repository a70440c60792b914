//! Roll-outs on the device, of one scene or of several side by side: scenes and plans go there once, each pass
//! is a replayed graph, and its displacements and sigmas come back.

use std::sync::Arc;

pub mod measure;
mod upload;

use rayon::prelude::*;

use super::Gpu;
use super::forward::{Forward, MAX_TOKENS};
use super::graph::Graph;
use super::memory::{Arena, Pinned};
use super::model::{DeviceModel, Precision};
use super::pass::{Buffers, Pass, Sizes};
use super::stage::Stage;
use crate::engine::backend::{Rollouts, SideBySide, Steps};
use crate::engine::model::rollout::{N_OUTPUTS, RolloutConfig};
use crate::engine::rollout_input::RolloutInput;
use crate::{Error, Result};
pub(super) use upload::{checked_sizes, stage};

/// Bits of the flag word, as in `kernels/common.cuh`.
const FLAG_POSITION: u32 = 1;
const FLAG_DISPLACEMENT: u32 = 2;

/// Runs roll-outs of one model on one GPU; keeps all memory, and a graph for each number of scenes, for as long
/// as the scenes' sizes stay the same.
#[derive(Debug)]
pub struct Rollout {
    n_steps: usize,
    /// Of the last run of a single scene.
    steps: Steps,
    /// Of each scene, in all that is captured.
    sizes: Sizes,
    captured: Vec<Captured>,
    counts: Counts,
    /// Scenes at once that there was memory for.
    most_scenes: usize,
    name: String,
    // Dropped behind the graphs, which refer to them.
    staged: Pinned<u32>,
    n_scenes: Pinned<u32>,
    moved: Pinned<f32>,
    expected: Pinned<f32>,
    counters: Pinned<u32>,
    arena: Arena,
    model: DeviceModel,
    gpu: Arc<Gpu>,
}

/// A pass of up to so many scenes. All lie in the same memory, and run one after the other.
#[derive(Debug)]
struct Captured {
    room: usize,
    buffers: Buffers,
    graph: Graph,
}

/// A scene, and how many steps of it are wanted.
type Scene<'a> = (&'a RolloutInput, usize);

/// What was made anew so far; in the steady state nothing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Allocations on the device and of pinned memory.
    pub allocations: usize,
    /// Captures of a pass's graph: one for each change of sizes, and for each number of scenes.
    pub captures: usize,
}

impl Rollout {
    /// Roll-outs of models of `config` with `weights`, on `gpu`.
    ///
    /// # Errors
    /// [`Error::Device`] if they do not run there, or do not fit; [`Error::Shape`] for weights of
    /// another model, or other features and outputs than tokens and motions have.
    pub fn new(
        gpu: Arc<Gpu>,
        config: RolloutConfig,
        weights: &[f32],
        precision: Precision,
    ) -> Result<Self> {
        let (tokens, model) = (&config.tokens, &config.interlacer);
        let n_outputs = tokens.steps_per_pass * config.n_step_outputs().max(N_OUTPUTS);
        for (what, expected, got) in [
            ("features", tokens.n_features(), model.n_features),
            ("outputs", n_outputs, model.n_outputs),
        ] {
            if got != expected {
                return Err(Error::Shape { what, expected, got });
            }
        }
        let model = DeviceModel::new(&gpu, config, weights, precision)?;
        Ok(Self {
            n_steps: 0,
            steps: Steps::default(),
            sizes: Sizes::default(),
            captured: Vec::new(),
            counts: Counts::default(),
            most_scenes: usize::MAX,
            name: gpu.name().to_owned(),
            staged: Pinned::new(gpu.clone()),
            n_scenes: Pinned::new(gpu.clone()),
            moved: Pinned::new(gpu.clone()),
            expected: Pinned::new(gpu.clone()),
            counters: Pinned::new(gpu.clone()),
            arena: Arena::new(gpu.clone()),
            model,
            gpu,
        })
    }

    /// What was made anew so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The scenes on the device, and the graph of as many or a few more: its place in `captured`.
    fn prepare(&mut self, scenes: &[Scene<'_>]) -> Result<usize> {
        let config = self.model.config;
        let sizes = common_sizes(scenes, &config, &self.sizes)?;
        // Few different numbers, so that few graphs are captured; blocks of what is too many end at once,
        // or compute something that nobody reads.
        let room = scenes.len().next_power_of_two();
        let n_all = sizes.n_tokens() * room;
        if n_all > MAX_TOKENS {
            return Err(Error::Shape { what: "tokens", expected: MAX_TOKENS, got: n_all });
        }
        self.gpu.bind()?;
        // A run that ended early may still be reading what is staged.
        self.gpu.synchronize()?;
        if sizes != self.sizes {
            // The old graphs would write into memory that means something else.
            self.captured.clear();
            self.sizes = sizes;
        }
        let place = match self.captured.iter().position(|known| known.room == room) {
            Some(place) => place,
            None => self.capture(room)?,
        };
        let (buffers, len) = (&self.captured[place].buffers, sizes.n_uploaded());
        let staged = self.staged.get_mut(len * scenes.len());
        staged.par_chunks_mut(len).zip(scenes).for_each(|(to, &(scene, n_steps))| {
            stage(scene, &sizes, config.n_rows(n_steps), to);
        });
        self.n_scenes.get_mut(1)[0] = super::kernels::number(scenes.len());
        self.gpu.upload(&self.staged, buffers.uploaded.part(0, len * scenes.len()))?;
        self.gpu.upload(&self.n_scenes, buffers.n_scenes)?;
        self.gpu.clear(buffers.counters)?;
        Ok(place)
    }

    /// Captures a pass of up to `room` scenes: its place in `captured`.
    fn capture(&mut self, room: usize) -> Result<usize> {
        let (config, precision, sizes) = (self.model.config, self.model.precision, self.sizes);
        let take = |places: &mut _| Buffers::take(&config, precision, sizes, room, places);
        let laid_out = self.arena.lay_out(take);
        if !matches!(laid_out, Ok((_, false))) {
            // They would write where nothing is any more.
            self.captured.clear();
        }
        let (buffers, is_new) = laid_out?;
        let grown = [
            self.staged.reserve(buffers.uploaded.len())?,
            self.n_scenes.reserve(1)?,
            self.moved.reserve(buffers.displacements.len())?,
            self.expected.reserve(buffers.sigmas.len())?,
            self.counters.reserve(buffers.counters.len())?,
        ];
        self.counts.allocations +=
            usize::from(is_new) + grown.iter().filter(|has_grown| **has_grown).count();
        if grown.contains(&true) {
            self.captured.clear();
        }
        let gpu = self.gpu.clone();
        let graph = Graph::capture(&gpu, || {
            self.pass(&buffers, None).run()?;
            gpu.download(buffers.displacements, &mut self.moved)?;
            gpu.download(buffers.sigmas, &mut self.expected)?;
            gpu.download(buffers.counters, &mut self.counters)
        })?;
        self.counts.captures += 1;
        self.captured.push(Captured { room, buffers, graph });
        Ok(self.captured.len() - 1)
    }

    /// All of a pass, or one stage.
    fn pass<'a>(&'a self, buffers: &'a Buffers, only: Option<Stage>) -> Pass<'a> {
        let (gpu, model) = (&self.gpu, &self.model);
        Pass { forward: Forward { gpu, model, buffers: &buffers.forward, only }, buffers }
    }

    /// Rolls `scenes` out into `all`, until `goes_on`, told the steps that are done, is false behind a pass.
    /// The next run starts afresh if the device fails.
    fn roll(
        &mut self,
        scenes: &[Scene<'_>],
        all: &mut [Steps],
        goes_on: impl FnMut(usize) -> bool,
    ) -> Result<()> {
        let done = self.prepare(scenes).and_then(|place| self.passes(place, scenes, all, goes_on));
        if matches!(done, Err(Error::Device { .. })) {
            self.captured.clear();
            self.sizes = Sizes::default();
        }
        done
    }

    fn passes(
        &mut self,
        place: usize,
        scenes: &[Scene<'_>],
        all: &mut [Steps],
        mut goes_on: impl FnMut(usize) -> bool,
    ) -> Result<()> {
        let config = self.model.config;
        let most = scenes.iter().map(|&(_, n_steps)| n_steps).max().unwrap_or(0);
        for index in 0..config.n_passes(most) {
            self.captured[place].graph.launch(&self.gpu, "a pass")?;
            self.gpu.synchronize()?;
            let results = self.results(scenes.len());
            let under_way = scenes.par_iter().zip(&mut *all).enumerate();
            let under_way =
                under_way.filter(|(_, ((_, n_steps), _))| index < config.n_passes(*n_steps));
            under_way.try_for_each(|(scene, (_, steps))| results.read(scene, index, steps))?;
            if !goes_on(((index + 1) * config.replan_interval).min(most)) {
                break;
            }
        }
        Ok(())
    }

    /// What the last pass of `n_scenes` gave.
    fn results(&self, n_scenes: usize) -> Results<'_> {
        let (config, n) = (&self.model.config, self.sizes.n);
        let told = if config.tells_sigma() { config.tokens.steps_per_pass } else { 0 };
        Results {
            config,
            n,
            counters: self.counters.get(2 * n_scenes),
            moved: self.moved.get(3 * n * config.replan_interval * n_scenes),
            sigmas: self.expected.get(n * told * n_scenes),
            told,
        }
    }
}

/// What came back of a pass, one scene behind the other.
struct Results<'a> {
    config: &'a RolloutConfig,
    n: usize,
    counters: &'a [u32],
    moved: &'a [f32],
    sigmas: &'a [f32],
    /// Steps of which there are sigmas.
    told: usize,
}

impl Results<'_> {
    /// Takes over what pass `index` gave for a scene: its own steps, and sigmas of those that it looks at
    /// first.
    fn read(&self, scene: usize, index: usize, to: &mut Steps) -> Result<()> {
        check_flags(self.counters[2 * scene + 1])?;
        let (n, kept) = (self.n, self.config.replan_interval);
        let (vectors, _) = self.moved.as_chunks();
        let of_step = |j: usize, steps: usize| (scene * steps + j) * n..(scene * steps + j + 1) * n;
        let first = index * kept;
        for j in 0..kept {
            to.set_displacements(first + j, &vectors[of_step(j, kept)]);
        }
        for j in (0..self.told).filter(|j| self.config.first_look(first + j) == index) {
            to.set_sigmas(first + j, &self.sigmas[of_step(j, self.told)]);
        }
        Ok(())
    }
}

/// Sizes that all scenes have.
fn common_sizes(scenes: &[Scene<'_>], config: &RolloutConfig, before: &Sizes) -> Result<Sizes> {
    let mut sizes = *before;
    // Twice, as room for a later one's is room for an earlier one's, too.
    for _ in 0..2 {
        for (i, &(scene, n_steps)) in scenes.iter().enumerate() {
            let of_scene = checked_sizes(scene, config, n_steps, &sizes)?;
            let alike = [&of_scene, &sizes].map(|s| [s.n, s.h, s.n_robot, s.stride, s.n_links]);
            if i > 0 && alike[0] != alike[1] {
                let what = "tokens of each scene, as many of each kind";
                let [expected, got] = [sizes.n_tokens(), of_scene.n_tokens()];
                return Err(Error::Shape { what, expected, got });
            }
            sizes = of_scene;
        }
    }
    Ok(sizes)
}

impl Rollouts for Rollout {
    fn run_while(
        &mut self,
        scene: &RolloutInput,
        n_steps: usize,
        goes_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<()> {
        self.n_steps = 0;
        let (mut n_done, mut steps) = (0, [std::mem::take(&mut self.steps)]);
        let done = self.roll(&[(scene, n_steps)], &mut steps, |n| {
            n_done = n;
            goes_on(n)
        });
        let [steps] = steps;
        (self.steps, self.n_steps) = (steps, n_done);
        done
    }

    fn displacements(&self, t: usize) -> &[[f32; 3]] {
        self.steps.displacements(t)
    }

    fn sigmas(&self, t: usize) -> Option<&[f32]> {
        self.steps.sigmas(t)
    }

    fn n_steps(&self) -> usize {
        self.n_steps
    }

    fn name(&self) -> &str {
        self.gpu.name()
    }
}

impl SideBySide for Rollout {
    fn run(&mut self, scenes: &[(&RolloutInput, usize)], steps: &mut [Steps]) -> Result<()> {
        let mut first = 0;
        while first < scenes.len() {
            let next = first + self.most_scenes.min(scenes.len() - first);
            let done = self.roll(&scenes[first..next], &mut steps[first..next], |_| true);
            if done.is_err() && self.arena.has_run_out() && next - first > 1 {
                // Half as many may fit.
                self.most_scenes = (next - first).next_power_of_two() / 2;
                let n = self.most_scenes;
                self.name = format!(
                    "{}, {n} scenes at once: its memory has no room for more",
                    self.gpu.name()
                );
                continue;
            }
            done?;
            first = next;
        }
        Ok(())
    }

    fn name(&self) -> &str {
        &self.name
    }
}

fn check_flags(flags: u32) -> Result<()> {
    if flags & FLAG_POSITION != 0 {
        return Err(Error::NonFinite { what: "positions of the k-NN graph" });
    }
    if flags & FLAG_DISPLACEMENT != 0 {
        let what = "predicted motion (check the model file and the joint states)";
        return Err(Error::NonFinite { what });
    }
    Ok(())
}
