//! Groups: what hangs together off the support plane, however it moves, and how far it reaches.

use crate::base::geometry::{Forest, Vec3, add, bounds, dot};
use crate::predict::observation::Observation;
use crate::robot::kinematics::NO_LINK;
use crate::vision::particles::Particles;

/// Directions along which both ends of a group are looked for: along the axes and between two of them.
pub(super) const DIRECTIONS: [Vec3; N_DIRECTIONS] = [
    [1.0, 0.0, 0.0],
    [0.0, 1.0, 0.0],
    [0.0, 0.0, 1.0],
    [DIAGONAL, DIAGONAL, 0.0],
    [DIAGONAL, -DIAGONAL, 0.0],
    [DIAGONAL, 0.0, DIAGONAL],
    [DIAGONAL, 0.0, -DIAGONAL],
    [0.0, DIAGONAL, DIAGONAL],
    [0.0, DIAGONAL, -DIAGONAL],
];
pub(super) const N_DIRECTIONS: usize = 9;
const DIAGONAL: f32 = std::f32::consts::FRAC_1_SQRT_2;

/// What lies less high above the support plane (m) is of it.
const CLEARANCE_M: f32 = 0.012;
/// A cell is this share of the cloud's largest extent, and so much at least (m): filled cells that touch hang together.
const CELL_SHARE: f32 = 0.016;
const LEAST_CELL_M: f32 = 0.002;
const MAX_CELLS: f32 = 128.0;
/// Points of a group at least.
const MIN_POINTS: u32 = 40;
/// What is larger than this share of the cloud is a wall, furniture, or the robot.
const LARGE: f32 = 0.4;
/// An end is the mean of these ranks of the farthest points: the first may be none of it.
const RANKS: usize = 6;
const SKIPPED: usize = 2;
/// No group.
pub(super) const NONE: u32 = u32::MAX;

/// What hangs together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    pub n: u32,
    /// Sum of its points' colours.
    color: Vec3,
    /// Places (m) along each direction of the farthest points: least ones negated, and greatest ones; descending.
    farthest: [[[f32; RANKS]; 2]; N_DIRECTIONS],
    min: Vec3,
    max: Vec3,
    is_usable: bool,
}

/// Finds groups; its vectors are kept.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Points of the cloud off the support plane.
    raised: Vec<u32>,
    positions: Vec<Vec3>,
    min: Vec3,
    cell_m: f32,
    counts: [usize; 3],
    /// Which of the filled cells each cell is, [`NONE`] of empty ones.
    filled: Vec<u32>,
    /// The cells that are filled, and the group of each.
    cells: Vec<u32>,
    of_cells: Vec<u32>,
    /// The filled cell of each of the raised points.
    cell_of: Vec<u32>,
    joined: Forest,
    groups: Vec<Group>,
}

impl Groups {
    /// Finds the groups of the cloud of `now`.
    pub fn find(&mut self, now: &Observation) {
        let Self { raised, positions, .. } = self;
        let cloud = &now.cloud;
        let is_raised = |p: &Vec3| cloud.support_m.is_none_or(|z| p[2] > z + CLEARANCE_M);
        raised.clear();
        positions.clear();
        for (i, p) in cloud.positions.iter().enumerate().filter(|(_, p)| is_raised(p)) {
            raised.push(i as u32);
            positions.push(*p);
        }
        let [min, max] = bounds(&cloud.positions);
        let extent_m = (0..3).map(|axis| max[axis] - min[axis]).fold(0.0, f32::max);
        self.groups.clear();
        self.cells.clear();
        // Neither points nor numbers: nothing hangs together.
        if self.positions.is_empty() || !extent_m.is_finite() {
            self.counts = [0; 3];
            return;
        }
        self.min = min;
        self.cell_m = (CELL_SHARE * extent_m).max(LEAST_CELL_M).max(extent_m / MAX_CELLS);
        self.counts = std::array::from_fn(|k| ((max[k] - min[k]) / self.cell_m) as usize + 1);
        self.fill();
        self.join();
        self.measure(now, extent_m);
    }

    /// The group of what is at `p`.
    pub fn at(&self, p: &Vec3) -> u32 {
        let Some(cell) = self.cell(p) else { return NONE };
        let filled = self.filled[cell];
        self.of_cells.get(filled as usize).copied().unwrap_or(NONE)
    }

    fn cell(&self, p: &Vec3) -> Option<usize> {
        let mut at = [0; 3];
        for k in 0..3 {
            let place = (p[k] - self.min[k]) / self.cell_m;
            // Also what is no number.
            if !(place >= 0.0 && place < self.counts[k] as f32) {
                return None;
            }
            at[k] = place as usize;
        }
        Some((at[2] * self.counts[1] + at[1]) * self.counts[0] + at[0])
    }

    fn fill(&mut self) {
        self.filled.clear();
        self.filled.resize(self.counts.iter().product(), NONE);
        let mut cell_of = std::mem::take(&mut self.cell_of);
        cell_of.clear();
        for p in &self.positions {
            let cell = self.cell(p).unwrap_or(0);
            let filled = &mut self.filled[cell];
            if *filled == NONE {
                *filled = self.cells.len() as u32;
                self.cells.push(cell as u32);
            }
            cell_of.push(*filled);
        }
        self.cell_of = cell_of;
    }

    /// Joins filled cells that touch.
    fn join(&mut self) {
        let Self { joined, cells, filled, counts, .. } = self;
        joined.reset(cells.len());
        let [nx, ny, nz] = *counts;
        for (i, &cell) in cells.iter().enumerate() {
            let cell = cell as usize;
            let (x, y, z) = (cell % nx, cell / nx % ny, cell / (nx * ny));
            let near = |at: usize, n: usize| at.saturating_sub(1)..(at + 2).min(n);
            for z in near(z, nz) {
                for y in near(y, ny) {
                    for x in near(x, nx) {
                        let other = filled[(z * ny + y) * nx + x];
                        if other != NONE && (other as usize) < i {
                            joined.join(other as usize, i);
                        }
                    }
                }
            }
        }
    }

    /// Numbers the groups in the order of their first points, and measures them.
    fn measure(&mut self, now: &Observation, extent_m: f32) {
        let Self { positions, cells, of_cells, cell_of, joined, groups, .. } = self;
        of_cells.clear();
        for i in 0..cells.len() {
            let root = joined.root(i);
            if root == i {
                of_cells.push(groups.len() as u32);
                groups.push(Group::default());
            } else {
                of_cells.push(of_cells[root]);
            }
        }
        for (p, &cell) in positions.iter().zip(&*cell_of) {
            groups[of_cells[cell as usize] as usize].count(p);
        }
        let on_robot = now.particles.positions.iter().zip(&now.on_links);
        let on_robot = on_robot.filter(|(_, link)| **link != NO_LINK).map(|(p, _)| p);
        for p in now.kinematic.iter().chain(on_robot) {
            self.set_robot(p);
        }
        for group in &mut self.groups {
            let is_small = group.extent_m() < LARGE * extent_m;
            group.is_usable &= group.n >= MIN_POINTS && is_small;
        }
        let points = self.positions.iter().zip(&self.raised).zip(&self.cell_of);
        for ((p, &i), &cell) in points {
            let group = &mut self.groups[self.of_cells[cell as usize] as usize];
            if group.is_usable {
                group.add(p, &now.cloud.colors[i as usize]);
            }
        }
    }

    /// What touches a point `p` of the robot is of the robot.
    fn set_robot(&mut self, p: &Vec3) {
        for (axis, step) in
            [(0, 0.0), (0, -1.0), (0, 1.0), (1, -1.0), (1, 1.0), (2, -1.0), (2, 1.0)]
        {
            let mut beside = *p;
            beside[axis] += step * self.cell_m;
            let at = self.at(&beside) as usize;
            if let Some(group) = self.groups.get_mut(at) {
                group.is_usable = false;
            }
        }
    }

    /// Number of groups.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Those that can be followed, with their numbers: neither few points, nor the robot, nor large as walls are.
    pub fn usable(&self) -> impl Iterator<Item = (usize, &Group)> {
        self.groups.iter().enumerate().filter(|(_, group)| group.is_usable)
    }

    /// Points of `cloud`, in which they were found, off the support plane: their places (m), groups and sources.
    /// None of clouds that don't tell sources.
    pub fn points<'a>(
        &'a self,
        cloud: &'a Particles,
    ) -> impl Iterator<Item = (&'a Vec3, u32, u32)> {
        let points = self.raised.iter().zip(&self.positions).zip(&self.cell_of);
        points.filter_map(|((&i, p), &cell)| {
            Some((p, self.of_cells[cell as usize], *cloud.sources.get(i as usize)?))
        })
    }
}

impl Default for Group {
    fn default() -> Self {
        let farthest = [[[f32::NEG_INFINITY; RANKS]; 2]; N_DIRECTIONS];
        let [min, max] = bounds(&[]);
        Self { n: 0, color: [0.0; 3], min, max, farthest, is_usable: true }
    }
}

impl Group {
    fn count(&mut self, p: &Vec3) {
        self.n += 1;
        self.min = std::array::from_fn(|k| self.min[k].min(p[k]));
        self.max = std::array::from_fn(|k| self.max[k].max(p[k]));
    }

    fn extent_m(&self) -> f32 {
        (0..3).map(|k| self.max[k] - self.min[k]).fold(0.0, f32::max)
    }

    fn add(&mut self, p: &Vec3, color: &Vec3) {
        add(&mut self.color, color);
        for (direction, farthest) in DIRECTIONS.iter().zip(&mut self.farthest) {
            let along = dot(p, direction);
            insert(&mut farthest[0], -along);
            insert(&mut farthest[1], along);
        }
    }

    /// Where it ends along each direction (m): the low end and the high one.
    pub fn ends(&self) -> [[f32; 2]; N_DIRECTIONS] {
        let mean =
            |ranks: &[f32; RANKS]| ranks[SKIPPED..].iter().sum::<f32>() / (RANKS - SKIPPED) as f32;
        self.farthest.map(|[low, high]| [-mean(&low), mean(&high)])
    }

    /// Its mean colour.
    pub fn color(&self) -> Vec3 {
        self.color.map(|x| x / self.n.max(1) as f32)
    }
}

/// Puts `x` in its place among the descending `ranks`.
#[inline(always)]
fn insert(ranks: &mut [f32; RANKS], mut x: f32) {
    if x <= ranks[RANKS - 1] {
        return;
    }
    for rank in ranks {
        (*rank, x) = (rank.max(x), rank.min(x));
    }
}
