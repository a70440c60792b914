//! What patches of one body agree on. A patch within a surface of one colour fits rest as well as any
//! motion along it, and rests; patches at its edges do not. So seeds that look alike and hang together
//! are asked as one which of their motions, or rest, suits them best.

use rayon::prelude::*;

use super::patch::{Context, Patch};
use super::rigid::Rigid;
use super::seeds::Seed;
use super::{Vec3, dot, minus};

/// Seeds nearer than this hang together (m), if their colours differ by less in each channel.
const REACH_M: f32 = 0.06;
const ALIKE: f32 = 0.12;
/// Motions that a body is asked for at most, beside rest, and how far apart they are (m).
const MAX_MOTIONS: usize = 4;
const APART_M: f32 = 0.005;
/// Share of a patch found again from which on its motion is asked for.
const MIN_FOUND: f32 = 0.3;
/// By how much (mean cost) a motion must be better than rest.
const MARGIN: f32 = 0.03;
/// By how much a motion that the body agrees on may fit a patch worse than its own.
const SLACK: f32 = 0.15;

/// Finds what bodies agree on, keeping its memory between calls.
#[derive(Debug, Default, Clone)]
pub(super) struct Consensus {
    parents: Vec<u32>,
    motions: Vec<Vec<Rigid>>,
    costs: Vec<[f32; MAX_MOTIONS + 1]>,
    sums: Vec<[f32; MAX_MOTIONS + 1]>,
    counts: Vec<u32>,
}

impl Consensus {
    /// Gives the seeds of each body the motion that they agree on.
    pub(super) fn agree(
        &mut self,
        context: &Context,
        cells: &[u32],
        seeds: &mut [Seed],
        patches: &mut [Patch],
    ) {
        let n = seeds.len();
        self.group(context, cells, seeds);
        self.motions.iter_mut().for_each(Vec::clear);
        self.motions.resize_with(self.motions.len().max(n), Vec::new);
        let mut order: Vec<u32> = (0..n as u32).collect();
        order.sort_by(|&a, &b| seeds[a as usize].cost.total_cmp(&seeds[b as usize].cost));
        for i in order {
            let seed = &seeds[i as usize];
            if seed.moves() && !seed.is_sure && seed.found >= MIN_FOUND {
                let motions = &mut self.motions[self.parents[i as usize] as usize];
                let there = seed.pose.apply(&seed.position);
                let is_new = motions.iter().all(|other| {
                    let d = minus(&other.apply(&seed.position), &there);
                    dot(&d, &d) > APART_M * APART_M
                });
                if is_new && motions.len() < MAX_MOTIONS {
                    motions.push(seed.pose);
                }
            }
        }
        self.costs.clear();
        self.costs.resize(n, [0.0; MAX_MOTIONS + 1]);
        let (parents, motions) = (&self.parents[..], &self.motions[..]);
        let rest = Rigid::default();
        self.costs.par_iter_mut().zip(patches).zip(&seeds[..]).zip(parents).for_each(
            |(((costs, patch), seed), &body)| {
                let motions = &motions[body as usize];
                if motions.is_empty() || seed.is_on_link() {
                    return;
                }
                if seed.is_sure {
                    context.gather(&seed.position, patch);
                }
                costs[0] = context.cost(patch, &rest).0;
                for (cost, motion) in costs[1..].iter_mut().zip(motions) {
                    *cost = context.cost(patch, motion).0;
                }
            },
        );
        self.sums.clear();
        self.sums.resize(n, [0.0; MAX_MOTIONS + 1]);
        self.counts.clear();
        self.counts.resize(n, 0);
        for (i, costs) in self.costs.iter().enumerate() {
            let body = parents[i] as usize;
            self.counts[body] += 1;
            self.sums[body].iter_mut().zip(costs).for_each(|(sum, cost)| *sum += cost);
        }
        for (i, seed) in seeds.iter_mut().enumerate() {
            let body = parents[i] as usize;
            let (motions, sums) = (&motions[body], &self.sums[body]);
            let best = (1..=motions.len()).min_by(|&a, &b| sums[a].total_cmp(&sums[b]));
            let Some(best) = best.filter(|_| !seed.is_on_link()) else { continue };
            if sums[best] + MARGIN * self.counts[body] as f32 >= sums[0] {
                continue;
            }
            let cost = self.costs[i][best];
            let own = if seed.moves() { seed.cost } else { self.costs[i][0] };
            if cost <= own + SLACK {
                seed.take(motions[best - 1], cost);
            }
        }
    }

    /// Joins the seeds that hang together: `parents` tells the first seed of each one's body.
    fn group(&mut self, context: &Context, cells: &[u32], seeds: &[Seed]) {
        let Self { parents, .. } = self;
        parents.clear();
        parents.extend(0..seeds.len() as u32);
        let color = |seed: &Seed| context.raised.point(seed.place as usize).1;
        for (i, seed) in seeds.iter().enumerate().filter(|(_, seed)| !seed.is_on_link()) {
            let here: Vec3 = color(seed);
            context.raised.near_cells(&seed.position, REACH_M, |cell| {
                let j = cells[cell] as usize;
                let Some(other) = seeds.get(j).filter(|other| j < i && !other.is_on_link()) else {
                    return;
                };
                let d = minus(&seed.position, &other.position);
                let c = minus(&here, &color(other));
                if dot(&d, &d) < REACH_M * REACH_M && c.iter().all(|c| c.abs() < ALIKE) {
                    let (a, b) = (root(parents, i as u32), root(parents, j as u32));
                    parents[a.max(b) as usize] = a.min(b);
                }
            });
        }
        for i in 0..parents.len() as u32 {
            parents[i as usize] = root(parents, i);
        }
    }
}

/// The root of `i`'s tree; halves the way to it.
fn root(parents: &mut [u32], mut i: u32) -> u32 {
    while parents[i as usize] != i {
        parents[i as usize] = parents[parents[i as usize] as usize];
        i = parents[i as usize];
    }
    i
}
