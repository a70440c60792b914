//! What patches of one body agree on. A patch within a surface of one colour fits rest as well as any
//! motion along it, and rests; patches at its edges do not. So seeds that hang together are asked as one
//! which of their motions, or rest, suits them best: whatever they look like, as things have stripes and
//! sides; then those that look alike, as what touches may move apart. A table that rest suits as well as
//! the motion of what slides on it rests again then.

use std::ops::Range;

use rayon::prelude::*;

use super::patch::{Context, NARROW, Patch};
use super::seeds::Seed;
use super::settings::Settings;
use crate::base::geometry::{Forest, Rigid, Vec3, minus, squared_distance};

/// Motions of its seeds that a body is asked for at most; with the one found for all of it together,
/// all that it is asked for beside rest.
pub(super) const N_OWN: usize = 2;
const MAX_MOTIONS: usize = N_OWN + 1;

/// Finds what bodies agree on, keeping its memory between calls.
#[derive(Debug, Default, Clone)]
pub(super) struct Consensus {
    joined: Forest,
    /// Seeds by body, of each body those that fit best first; and which body each seed is of.
    order: Vec<u32>,
    body_of: Vec<u32>,
    /// With how many seeds each was asked in the round before, itself among them.
    asked_with: Vec<u32>,
    bodies: Vec<Body>,
    /// The seeds as they were before the first round.
    before: Vec<Seed>,
    /// Whether each seed is one of those that its body is registered by.
    is_joint: Vec<bool>,
    /// Whether each seed is one of those that its body is asked by.
    votes: Vec<bool>,
    /// What rest and the motions of its body cost each seed.
    costs: Vec<[f32; MAX_MOTIONS + 1]>,
}

/// Seeds that are asked as one.
#[derive(Debug, Default, Clone)]
struct Body {
    /// Its seeds, as places in the order.
    seeds: Range<usize>,
    /// Whether there is anything to ask: not all of them surely rest.
    is_uneasy: bool,
    n_motions: usize,
    motions: [Rigid; MAX_MOTIONS],
    /// Which of these it moves by, counted from 1, if not at rest.
    choice: Option<usize>,
    /// Whether rest suits it too well for the motion that it took in the round before.
    rests: bool,
}

impl Consensus {
    /// Gives the seeds of each body the motion that they agree on; where a `camera_moved`, only those that look
    /// alike.
    pub(super) fn agree(
        &mut self,
        context: &Context,
        cells: &[u32],
        seeds: &mut [Seed],
        patches: &mut [Patch],
        camera_moved: bool,
    ) {
        let Settings { group_color, group_slack: [whole, alike], .. } = *context.settings;
        let rounds = [(f32::INFINITY, whole), (group_color, alike)];
        self.asked_with.clear();
        self.asked_with.resize(seeds.len(), 0);
        self.before.clear();
        self.before.extend_from_slice(seeds);
        // What the pose of a camera that moved errs by suits all that rests alike.
        for &(color, slack) in &rounds[usize::from(camera_moved)..] {
            self.group(context, cells, seeds, color);
            self.decide(context, seeds, patches, slack);
        }
    }

    /// Gives the seeds of each group the motion that they agree on, where it fits no worse by `slack`.
    fn decide(&mut self, context: &Context, seeds: &mut [Seed], patches: &mut [Patch], slack: f32) {
        self.costs.clear();
        self.costs.resize(seeds.len(), [0.0; MAX_MOTIONS + 1]);
        let Self { order, body_of, bodies, before, costs, is_joint, votes, .. } = self;
        let known = &seeds[..];
        patches.par_iter_mut().zip(known).zip(&*is_joint).for_each(|((patch, seed), &is_joint)| {
            if is_joint {
                context.gather_once(&seed.position, patch);
                context.measure(patch);
            }
        });
        let measured = &patches[..];
        bodies.par_iter_mut().filter(|body| body.is_uneasy).for_each(|body| {
            body.propose(context, &order[body.seeds.clone()], known, measured);
        });
        let asked = &bodies[..];
        let before = &before[..];
        let places = known.par_iter().zip(before).zip(&body_of[..]).zip(&mut *patches).zip(&*votes);
        costs.par_iter_mut().zip(places).for_each(
            |(costs, ((((seed, before), &body), patch), &votes))| {
                let body = &asked[body as usize];
                if body.n_motions > 0 && (votes || seed.took(before)) {
                    context.gather_once(&seed.position, patch);
                    costs[0] = context.rest_cost(patch);
                }
                if votes {
                    for (cost, motion) in costs[1..].iter_mut().zip(body.motions()) {
                        *cost = context.cost(patch, motion, f32::INFINITY).0;
                    }
                }
            },
        );
        for body in bodies.iter_mut().filter(|body| body.n_motions > 0) {
            body.choose(context.settings, &order[body.seeds.clone()], costs, [before, known]);
        }
        let decided = &bodies[..];
        let places = costs.par_iter().zip(&body_of[..]).zip(patches).zip(&*votes).zip(before);
        seeds.par_iter_mut().zip(places).for_each(
            |(seed, ((((costs, &body), patch), &votes), before))| {
                let body = &decided[body as usize];
                if body.rests && !before.moves() {
                    *seed = *before;
                }
                let Some(choice) = body.choice else { return };
                let motion = body.motions[choice - 1];
                context.gather_once(&seed.position, patch);
                let own = match (seed.moves(), votes) {
                    (true, _) => seed.cost,
                    (false, true) => costs[0],
                    (false, false) => context.rest_cost(patch),
                };
                let most = own + slack;
                let cost = if votes { costs[choice] } else { context.cost(patch, &motion, most).0 };
                if cost <= most {
                    seed.take(motion, cost);
                }
            },
        );
    }

    /// Joins the seeds that hang together, and differ by less than `group_color` in each channel.
    fn group(&mut self, context: &Context, cells: &[u32], seeds: &[Seed], group_color: f32) {
        let group_reach_m = context.settings.group_reach_m;
        self.joined.reset(seeds.len());
        let color = |seed: &Seed| context.raised.point(seed.place as usize).1;
        for (i, seed) in seeds.iter().enumerate().filter(|(_, seed)| !seed.is_on_link()) {
            let here: Vec3 = color(seed);
            context.raised.cells.near(&seed.position, group_reach_m, |cell| {
                let j = cells[cell] as usize;
                let Some(other) = seeds.get(j).filter(|other| j < i && !other.is_on_link()) else {
                    return;
                };
                let distance_m2 = squared_distance(&seed.position, &other.position);
                let c = minus(&here, &color(other));
                if distance_m2 < group_reach_m * group_reach_m
                    && c.iter().all(|c| c.abs() < group_color)
                {
                    self.joined.join(i, j);
                }
            });
        }
        self.body_of.clear();
        self.body_of.extend((0..seeds.len()).map(|i| self.joined.root(i) as u32));
        let Self { order, body_of, asked_with, bodies, is_joint, votes, .. } = self;
        order.clear();
        order.extend(0..seeds.len() as u32);
        let body = |i: u32| body_of[i as usize];
        let cost = |i: u32| seeds[i as usize].cost;
        order.sort_unstable_by(|&a, &b| {
            let by_cost = || cost(a).total_cmp(&cost(b));
            body(a).cmp(&body(b)).then_with(by_cost).then(a.cmp(&b))
        });
        bodies.clear();
        let mut from = 0;
        for of_body in order.chunk_by(|&a, &b| body(a) == body(b)) {
            let to = from + of_body.len();
            // The same seeds are not asked twice.
            let is_asked = asked_with[of_body[0] as usize] as usize == of_body.len();
            let is_uneasy = !is_asked && of_body.iter().any(|&i| !seeds[i as usize].is_sure);
            bodies.push(Body { seeds: from..to, is_uneasy, ..Body::default() });
            from = to;
        }
        for flags in [&mut *is_joint, &mut *votes] {
            flags.clear();
            flags.resize(seeds.len(), false);
        }
        for (number, body) in bodies.iter().enumerate() {
            let of_body = &order[body.seeds.clone()];
            for &i in of_body {
                body_of[i as usize] = number as u32;
                asked_with[i as usize] = of_body.len() as u32;
            }
            if body.is_uneasy {
                joint(context.settings, of_body).for_each(|&i| is_joint[i as usize] = true);
                voters(context.settings, of_body).for_each(|&i| votes[i as usize] = true);
            }
        }
    }
}

/// Those of a body's `order`ed seeds that it is registered by: none of small ones, few of large ones.
fn joint<'a>(settings: &Settings, order: &'a [u32]) -> impl Iterator<Item = &'a u32> + use<'a> {
    let stride = order.len().div_ceil(settings.group_max_seeds).max(1);
    let order = if order.len() < settings.group_min_seeds { &[] } else { order };
    order.iter().step_by(stride)
}

/// Those of a body's `order`ed seeds that it is asked by: few of large ones.
fn voters<'a>(settings: &Settings, order: &'a [u32]) -> impl Iterator<Item = &'a u32> + use<'a> {
    order.iter().step_by(order.len().div_ceil(settings.group_max_votes).max(1))
}

impl Body {
    fn motions(&self) -> &[Rigid] {
        &self.motions[..self.n_motions]
    }

    /// Collects the motions of its `order`ed seeds that are worth asking for, and what all patches
    /// together are registered with, from the best one of these, or from rest.
    fn propose(&mut self, context: &Context, order: &[u32], seeds: &[Seed], patches: &[Patch]) {
        let settings = context.settings;
        let center = seeds[order[order.len() / 2] as usize].position;
        for seed in order.iter().map(|&i| &seeds[i as usize]) {
            if seed.moves()
                && seed.found >= settings.group_found
                && self.n_motions < settings.group_motions
            {
                self.add(seed.pose, &seed.position, settings.group_apart_m);
            }
        }
        if joint(settings, order).next().is_none() {
            return;
        }
        let mut pose = self.motions().first().copied().unwrap_or_default();
        let patches = || joint(settings, order).map(|&i| &patches[i as usize]);
        for scale in [0, 0, NARROW, NARROW] {
            context.refine_all(patches, &center, &mut pose, scale);
        }
        self.add(pose, &center, settings.group_apart_m);
    }

    /// Chooses by what rest and its motions cost its `order`ed seeds, and by these before the first round and now.
    fn choose(
        &mut self,
        settings: &Settings,
        order: &[u32],
        costs: &[[f32; MAX_MOTIONS + 1]],
        [before, now]: [&[Seed]; 2],
    ) {
        let voters = || voters(settings, order).map(|&i| i as usize);
        let all = order.iter().map(|&i| i as usize);
        let took = all.filter(|&i| now[i].took(&before[i]));
        let [going, resting] =
            took.fold([0.0; 2], |[going, resting], i| [going + now[i].cost, resting + costs[i][0]]);
        // A plane fits a motion along itself as well as rest; of a large one, too little is edge to tell.
        let area_m2 = order.len() as f32 * settings.seed_spacing_m.powi(2);
        let [small, large] = settings.group_taken;
        let most = if area_m2 < settings.group_large_m2 { small } else { large };
        self.rests = going > most * resting;
        let sum = |k: usize| voters().map(|i| costs[i][k]).sum::<f32>();
        let sums = (1..=self.n_motions).map(|k| (sum(k), k));
        let best = sums.min_by(|a, b| a.0.total_cmp(&b.0)).filter(|_| !self.rests);
        let rest = settings.group_better * sum(0);
        self.choice = best.filter(|best| best.0 < rest).map(|(_, best)| best);
    }

    /// Adds a motion if it takes the point `at` elsewhere, by `apart_m`, than rest and the others do.
    fn add(&mut self, pose: Rigid, at: &Vec3, apart_m: f32) {
        let there = pose.apply(at);
        let is_far = |other: &Vec3| squared_distance(other, &there) > apart_m * apart_m;
        if is_far(at) && self.motions().iter().all(|other| is_far(&other.apply(at))) {
            self.motions[self.n_motions] = pose;
            self.n_motions += 1;
        }
    }
}
