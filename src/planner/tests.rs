//! The parts of the planner, each alone.

use super::draw::{Kind, Sampler};
use super::path::Path;
use super::unsure;
use crate::planner::costs::{Goal, PlanCost, Reach, Select};

#[test]
fn ways_take_as_long_as_the_slowest_joint_and_no_less_than_asked() {
    let mut path = Path::stand(&[0.0, 1.0]);
    path.go(&[0.5, 1.0], 0.1, &[1.0, 2.0]);
    path.go(&[0.5, 1.2], 1.0, &[1.0, 2.0]);
    let times: Vec<f64> = path.points.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [0.0, 0.5, 1.5]);
    assert_eq!(path.end(), 1.5);
}

#[test]
fn draws_go_to_where_the_best_are_and_to_their_kind() {
    let kinds = vec![(Kind::Push(0), 3, 0.5), (Kind::Spline, 2, 0.5)];
    let mut sampler = Sampler::of(7, kinds.clone());
    let first: Vec<_> = (0..64).map(|_| sampler.draw()).collect();
    let mut again = Sampler::of(7, kinds.clone());
    assert!(first.iter().all(|drawn| *drawn == again.draw()), "the same seed, the same draws");
    let mut other = Sampler::of(8, kinds);
    assert!(first.iter().any(|drawn| *drawn != other.draw()));
    let n_pushes = first.iter().filter(|(kind, _)| *kind == Kind::Push(0)).count();
    assert!((16..48).contains(&n_pushes), "{n_pushes}");
    // The best are pushes about (1, -1, 2).
    let cost = |numbers: &[f64]| -> f64 {
        numbers.iter().zip([1.0, -1.0, 2.0]).map(|(x, best)| (x - best).powi(2)).sum()
    };
    let mut ranked: Vec<(f64, (Kind, Vec<f64>))> = Vec::new();
    for _ in 0..12 {
        for _ in 0..16 {
            let (kind, numbers) = sampler.draw();
            let cost = if kind == Kind::Spline { 100.0 } else { cost(&numbers) };
            ranked.push((cost, (kind, numbers)));
        }
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
        sampler.learn(ranked.iter().map(|(_, (kind, numbers))| (*kind, &numbers[..])));
    }
    assert!(ranked[0].0 < 0.1, "{:?}", ranked[0]);
    let late: Vec<_> = (0..64).map(|_| sampler.draw()).collect();
    let n_pushes = late.iter().filter(|(kind, _)| *kind == Kind::Push(0)).count();
    assert!((50..64).contains(&n_pushes), "{n_pushes}: more, but not all");
}

#[test]
fn what_a_plan_must_gain_is_one_sigma_of_its_cost() {
    let goal = Goal::new(Select::Body([0.0; 3]), Reach::Cloud(vec![[0.0; 3]]));
    let cost = PlanCost { reach_sigma: 0.01, cost_90: 0.5, ..PlanCost::default() };
    assert_eq!(unsure(&goal, &cost), 0.01);
    assert_eq!(unsure(&Goal { reach_weight: 3.0, ..goal }, &cost), 0.03);
}
