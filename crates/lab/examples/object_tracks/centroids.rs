//! The simple tracker: clusters of near points, each under the number of the nearest centre before.

use forecloud::base::geometry::{PointTree, Vec3, distance};
use forecloud::predict::objects::ParticleKind;
use forecloud::predict::predictor::Prediction;

/// Points this near to each other are of one cluster (m).
const REACH_M: f32 = 0.02;
/// Points of a cluster at least.
const MIN_POINTS: usize = 4;
/// How far a centre may have moved (m), and for how long one is remembered (s).
const GATE_M: f32 = 0.1;
const KEPT_SECS: f64 = 1.0;

#[derive(Default)]
pub struct Centroids {
    /// Number, centre (m), and when it was seen (s).
    known: Vec<(u64, Vec3, f64)>,
    n_numbers: u64,
}

impl Centroids {
    /// The number of each particle at `secs`; 0 for none.
    pub fn follow(&mut self, prediction: &Prediction, secs: f64) -> Vec<u64> {
        let kinds = &prediction.objects.kinds;
        let all = &prediction.particles.positions;
        let is_free = |i: &usize| !matches!(kinds[*i], ParticleKind::Support | ParticleKind::Robot);
        let free: Vec<usize> = (0..all.len()).filter(is_free).collect();
        let points: Vec<Vec3> = free.iter().map(|&i| all[i]).collect();
        let clusters = clusters(&points);
        let center = |cluster: &[usize]| -> Vec3 {
            std::array::from_fn(|axis| {
                cluster.iter().map(|&i| points[i][axis]).sum::<f32>() / cluster.len() as f32
            })
        };
        let centers: Vec<Vec3> = clusters.iter().map(|cluster| center(cluster)).collect();
        let mut pairs: Vec<(f32, usize, usize)> = Vec::new();
        for (i, center) in centers.iter().enumerate() {
            for (j, (_, before, _)) in self.known.iter().enumerate() {
                pairs.push((distance(center, before), i, j));
            }
        }
        pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut number_of = vec![0; clusters.len()];
        let mut is_taken = vec![false; self.known.len()];
        for (_, i, j) in pairs.into_iter().filter(|pair| pair.0 < GATE_M) {
            if number_of[i] == 0 && !is_taken[j] {
                (number_of[i], is_taken[j]) = (self.known[j].0, true);
            }
        }
        for number in number_of.iter_mut().filter(|number| **number == 0) {
            self.n_numbers += 1;
            *number = self.n_numbers;
        }
        self.known
            .retain(|(number, _, seen)| secs - seen <= KEPT_SECS && !number_of.contains(number));
        self.known.extend(number_of.iter().zip(&centers).map(|(&n, &center)| (n, center, secs)));
        let mut numbers = vec![0; all.len()];
        for (cluster, number) in clusters.iter().zip(number_of) {
            cluster.iter().for_each(|&i| numbers[free[i]] = number);
        }
        numbers
    }
}

fn clusters(points: &[Vec3]) -> Vec<Vec<usize>> {
    let Ok(tree) = PointTree::new(points) else { return Vec::new() };
    let mut is_seen = vec![false; points.len()];
    let mut clusters = Vec::new();
    for first in 0..points.len() {
        if std::mem::replace(&mut is_seen[first], true) {
            continue;
        }
        let (mut cluster, mut next) = (vec![first], 0);
        while let Some(&i) = cluster.get(next) {
            next += 1;
            for j in tree.within(&points[i], REACH_M) {
                if !std::mem::replace(&mut is_seen[j], true) {
                    cluster.push(j);
                }
            }
        }
        if cluster.len() >= MIN_POINTS {
            clusters.push(cluster);
        }
    }
    clusters
}
