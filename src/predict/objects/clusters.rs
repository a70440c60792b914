//! Clusters: what hangs together in space, cut where neighbouring parts move apart.

use crate::base::geometry::{Cells, Forest, Vec3, bounds, distance, length, squared_distance};

/// Particles of a cluster at least: fewer are noise.
const MIN_POINTS: usize = 4;
/// The reach of a particle, up to which others hang together with it, is so many times the distance of its third
/// nearest: on a surface about seven are within it, at which a random sample hangs together.
const REACH: f32 = 1.5;
/// The reach that most particles have is no less than this share of the scene's largest extent: a denser sample
/// tells no finer of what cameras see at that scale. And it is no more than this.
const USUAL: [f32; 2] = [0.008, 0.03];
/// What is sparser reaches farther than is usual, up to so many times.
const FARTHEST: f32 = 2.0;
/// Places in the (Morton) order in which the nearest are looked for.
const ORDER: usize = 10;
/// Neighbours move apart where their motions in a step differ by more than this (m), and by more than this share
/// of the faster one. Turning parts of one thing differ less within the reach.
const APART_M: f32 = 0.006;
const APART_SHARE: f32 = 0.25;
/// Cells along an axis at most: a point far out must not make the grid large.
const MAX_CELLS: f32 = 64.0;

/// No cluster.
pub(super) const NONE: u32 = u32::MAX;

/// Groups particles; its vectors are kept.
#[derive(Debug, Default)]
pub(super) struct Clusters {
    cells: Cells,
    joined: Forest,
    /// The same of what is near, however it moves.
    touching: Forest,
    /// The reach of each point, and the usual one (m).
    reaches: Vec<f32>,
    sorted: Vec<f32>,
    pub reach_m: f32,
    /// Positions (m) and motions in a step (m) of the points, in the particles' order.
    points: Vec<Vec3>,
    motions: Vec<Vec3>,
    /// Number of each point's cluster, [`NONE`] of too few; clusters are numbered by their first points.
    pub of: Vec<u32>,
    members: Vec<u32>,
    starts: Vec<u32>,
}

impl Clusters {
    /// Groups `points` (m), which move by `motions` in a step (m); the scene's largest extent is `extent_m`.
    pub fn find(&mut self, points: &[Vec3], motions: &[Vec3], extent_m: f32) {
        self.points.clear();
        self.points.extend_from_slice(points);
        self.motions.clear();
        self.motions.extend_from_slice(motions);
        self.set_reach(extent_m);
        self.join();
        self.sort();
    }

    /// Number of clusters.
    pub fn len(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// The points of a cluster, ascending.
    pub fn members(&self, cluster: usize) -> &[u32] {
        let ends = &self.starts[cluster..cluster + 2];
        &self.members[ends[0] as usize..ends[1] as usize]
    }

    /// How far each point reaches.
    fn set_reach(&mut self, extent_m: f32) {
        let Self { points, reaches, sorted, .. } = self;
        reaches.clear();
        reaches.extend((0..points.len()).map(|i| REACH * third_nearest(points, i)));
        sorted.clone_from(reaches);
        let middle = sorted.len() / 2;
        let usual = match sorted.is_empty() {
            true => 0.0,
            false => *sorted.select_nth_unstable_by(middle, f32::total_cmp).1,
        };
        let [least, most] = USUAL.map(|share| share * extent_m);
        self.reach_m = usual.min(most).max(least);
        let farthest = FARTHEST * self.reach_m;
        let (reach_m, reaches) = (self.reach_m, &mut self.reaches);
        reaches.iter_mut().for_each(|reach| *reach = reach.min(farthest).max(reach_m));
    }

    fn join(&mut self) {
        let Self { cells, joined, touching, points, motions, reaches, reach_m, .. } = self;
        joined.reset(points.len());
        touching.reset(points.len());
        let [min, max] = bounds(points);
        let extent_m = (0..3).map(|axis| max[axis] - min[axis]).fold(0.0, f32::max);
        let cell_m = reach_m.max(extent_m / MAX_CELLS).max(f32::MIN_POSITIVE);
        let count = |axis: usize| ((max[axis] - min[axis]) / cell_m).max(0.0) as usize + 1;
        cells.rebuild(points, min, cell_m, [count(0), count(1), count(2)]);
        for i in 0..points.len() {
            let (p, motion) = (points[i], motions[i]);
            cells.near_rows(&p, reaches[i], |places| {
                for &j in &cells.order()[places] {
                    let j = j as usize;
                    // As far as both of them reach: a stray point bridges no gap.
                    let reach = reaches[i].min(reaches[j]);
                    let is_near = j < i && squared_distance(&p, &points[j]) < reach * reach;
                    if !is_near {
                        continue;
                    }
                    touching.join(i, j);
                    if !moves_apart(&motion, &motions[j]) {
                        joined.join(i, j);
                    }
                }
            });
        }
    }

    /// Takes into `of`, for each point, the first of all that hang together with it, however they move.
    pub fn touching(&mut self, of: &mut Vec<u32>) {
        of.clear();
        of.extend((0..self.points.len()).map(|i| self.touching.root(i) as u32));
    }

    /// Numbers the clusters, and sorts the points by cluster.
    fn sort(&mut self) {
        let Self { joined, points, of, members, starts, .. } = self;
        let n = points.len();
        // How many there are of each root, and then its number.
        of.clear();
        of.resize(n, 0);
        (0..n).for_each(|i| of[joined.root(i)] += 1);
        starts.clear();
        starts.push(0);
        for i in 0..n {
            let root = joined.root(i);
            if root < i {
                of[i] = of[root];
            } else if (of[i] as usize) < MIN_POINTS {
                of[i] = NONE;
            } else {
                let end = starts.last().copied().unwrap_or(0) + of[i];
                of[i] = starts.len() as u32 - 1;
                starts.push(end);
            }
        }
        members.clear();
        members.resize(starts.last().copied().unwrap_or(0) as usize, 0);
        for (i, &cluster) in of.iter().enumerate().filter(|(_, cluster)| **cluster != NONE) {
            let at = &mut starts[cluster as usize];
            members[*at as usize] = i as u32;
            *at += 1;
        }
        // Each now is where the next one begins.
        starts.rotate_right(1);
        starts[0] = 0;
    }
}

/// Distance of point `i` from about the third nearest of the others (m): of those near to it in their order.
fn third_nearest(points: &[Vec3], i: usize) -> f32 {
    let mut nearest = [f32::INFINITY; 3];
    let others = (i.saturating_sub(ORDER)..i).chain(i + 1..(i + 1 + ORDER).min(points.len()));
    for j in others {
        let mut square = squared_distance(&points[i], &points[j]);
        for near in &mut nearest {
            (*near, square) = (near.min(square), near.max(square));
        }
    }
    nearest[2].sqrt()
}

/// Whether two motions in a step (m) are of parts that move apart.
pub(super) fn moves_apart(a: &Vec3, b: &Vec3) -> bool {
    let faster = length(a).max(length(b));
    distance(a, b) > APART_M + APART_SHARE * faster
}
