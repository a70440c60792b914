//! Costs of roll-outs small enough to reckon by hand.

use super::*;

const SPACE: Workspace = Workspace { min: [-1.0; 3], max: [1.0; 3] };

/// Two particles of the target at x = 0 and 0.1, two others at x = 0.5 and 0.6, one on the robot.
const PLACES: [Vec3; 5] =
    [[0.0; 3], [0.1, 0.0, 0.0], [0.5, 0.0, 0.0], [0.6, 0.0, 0.0], [0.05, 0.0, 0.0]];
const ON_LINKS: [u32; 5] = [NO_LINK, NO_LINK, NO_LINK, NO_LINK, 0];
const SOURCES: [u32; 5] = [0, 1, 2, 1 << 24, 3];
const BODIES: [u32; 5] = [7, 7, u32::MAX, 2, 7];

fn sight() -> Sight<'static> {
    Sight {
        positions: &PLACES,
        sources: &SOURCES,
        image_sizes: &[Some([2, 2])],
        body_of: &BODIES,
        on_links: &ON_LINKS,
        workspace: &SPACE,
    }
}

fn zone(min: [f64; 3], max: [f64; 3]) -> Zone {
    Zone { min, max }
}

fn about_target() -> Select {
    Select::Region(zone([-0.01; 3], [0.11, 0.01, 0.01]))
}

fn to_x(x: f64) -> Goal {
    Goal::new(about_target(), Reach::Box(zone([x, -1.0, -1.0], [1.0; 3])))
}

/// Each step moves particle `i` by `ways[i]` along x.
fn steps(n: usize, ways: [f32; 5]) -> Vec<Vec<Vec3>> {
    vec![ways.map(|x| [x, 0.0, 0.0]).to_vec(); n]
}

struct Rolled {
    displacements: Vec<Vec<Vec3>>,
    radii: [Vec<Vec<f32>>; 2],
    robot: Vec<Vec<Vec3>>,
    links: Vec<u32>,
    joints: Vec<Vec<f64>>,
    joint_velocities: Vec<f64>,
    lead: usize,
}

impl Rolled {
    fn new(displacements: Vec<Vec<Vec3>>) -> Self {
        let robot = vec![Vec::new(); displacements.len()];
        let (radii, links, joints) = (Default::default(), Vec::new(), Vec::new());
        Self { displacements, radii, robot, links, joints, joint_velocities: Vec::new(), lead: 0 }
    }

    fn cost(&self, goal: &Goal) -> PlanCost {
        let judge = Judge::new(goal, &sight()).unwrap();
        judge.cost(&self.consequence()).unwrap()
    }

    fn consequence(&self) -> Consequence<'_> {
        Consequence {
            displacements: &self.displacements,
            radii: [&self.radii[0], &self.radii[1]],
            robot: &self.robot,
            links: &self.links,
            joints: &self.joints,
            joint_velocities: &self.joint_velocities,
            step_secs: 0.1,
            lead: self.lead,
        }
    }
}

fn assert_near(got: f64, expected: f64) {
    assert!((got - expected).abs() < 1e-6, "{got}, expected {expected}");
}

#[test]
fn reach_is_the_mean_distance_to_where_the_target_shall_be() {
    // To x >= 0.3: 0.3 and 0.2 now; two steps of 0.05 bring 0.1 of that.
    let still = Rolled::new(steps(2, [0.0; 5])).cost(&to_x(0.3));
    assert_near(still.reach, 0.25);
    let moved = Rolled::new(steps(2, [0.05, 0.05, 0.0, 0.0, 0.0])).cost(&to_x(0.3));
    assert_near(moved.reach, 0.15);
    assert_near(moved.cost, 0.15);
    assert!(moved.success_probability.is_nan(), "the model does not tell");
    // A pose: half a turn about z, then 0.1 along x: 0 goes to 0.1, and 0.1 to 0.
    let pose = Reach::Pose { rotation: [0.0, 0.0, 1.0, 0.0], translation: [0.1, 0.0, 0.0] };
    let turned = Goal::new(about_target(), pose);
    assert_near(Rolled::new(steps(1, [0.0; 5])).cost(&turned).reach, 0.1);
    assert_near(Rolled::new(steps(1, [0.1, -0.1, 0.0, 0.0, 0.0])).cost(&turned).reach, 0.0);
    // A cloud of one point at 0.2: there 0.2 and 0.1 (mean 0.15), back 0.1.
    let cloud = Goal::new(about_target(), Reach::Cloud(vec![[0.2, 0.0, 0.0]]));
    assert_near(Rolled::new(steps(1, [0.0; 5])).cost(&cloud).reach, 0.125);
}

#[test]
fn what_enters_a_box_and_what_does_not_stay_costs() {
    let goal = Goal {
        keep_out: vec![zone([0.55, -0.05, -0.1], [1.0, 0.05, 0.1])],
        leave_weight: 1.0,
        reach_weight: 0.0,
        keep_out_weight: 1.0,
        ..to_x(0.3)
    };
    // One lies 0.05 deep at the start: no intruder. The other enters with the second step of 0.04 by
    // 0.03; mean over two steps, and over four with a lead of two.
    let mut rolled = Rolled::new(steps(2, [0.0, 0.0, 0.04, 0.0, 0.0]));
    assert_near(rolled.cost(&goal).keep_out, 0.015);
    rolled.lead = 2;
    assert_near(rolled.cost(&goal).keep_out, 0.0075);
    // The worst tenth of two others is one of them.
    assert_near(rolled.cost(&goal).leave, 0.08);
    assert_near(rolled.cost(&goal).cost, 0.0875);
    // What lies on the robot may move and enter.
    let robot = Rolled::new(steps(1, [0.0, 0.0, 0.0, 0.0, 0.7]));
    assert_near(robot.cost(&goal).cost, 0.0);
}

#[test]
fn clearance_is_what_is_short_in_the_worst_step() {
    let goal = Goal { clearance: 0.05, clearance_weight: 2.0, reach_weight: 0.0, ..to_x(0.3) };
    let mut rolled = Rolled::new(steps(2, [0.0; 5]));
    // 3 cm over one of the others in the second step; the target may be touched.
    rolled.robot =
        vec![vec![[0.0, 0.0, 0.0], [0.5, 0.0, 0.2]], vec![[0.1, 0.0, 0.0], [0.5, 0.0, 0.03]]];
    rolled.links = vec![0, 1];
    assert_near(rolled.cost(&goal).clearance, 0.02);
    assert_near(rolled.cost(&goal).cost, 0.04);
    let unasked = Goal { clearance_weight: 0.0, reach_weight: 1.0, ..goal };
    assert_near(rolled.cost(&unasked).clearance, 0.0);
}

#[test]
fn length_and_smoothness_are_the_joints() {
    let goal = Goal { length_weight: 1.0, smoothness_weight: 1.0, reach_weight: 0.0, ..to_x(0.3) };
    let mut rolled = Rolled::new(steps(2, [0.0; 5]));
    rolled.joints = vec![vec![0.0, 0.0], vec![0.3, 0.4], vec![0.3, 0.4]];
    rolled.joint_velocities = vec![0.0, 0.0];
    let cost = rolled.cost(&goal);
    assert_near(cost.length, 0.5);
    // From rest to 3 and 4 rad/s in 0.1 s, and back to rest: 30², 40², 30², 40².
    assert_near(cost.smoothness, 1250.0);
    assert_near(cost.cost, 1250.5);
}

#[test]
fn unsure_predictions_are_told_and_cost_by_kappa() {
    // After the step one particle lies in the box, one 0.09 before it.
    let goal = Goal { tolerance: 0.04, ..to_x(0.14) };
    let mut rolled = Rolled::new(steps(1, [0.05, 0.05, 0.0, 0.0, 0.0]));
    let with = |rolled: &mut Rolled, half: f32, most: f32| {
        rolled.radii = [vec![vec![half; 5]], vec![vec![most; 5]]];
    };
    with(&mut rolled, 0.0, 0.0);
    let sure = rolled.cost(&goal);
    assert_near(sure.reach, 0.045);
    assert!((0.0..0.3).contains(&sure.success_probability), "{}", sure.success_probability);
    // What moves may end elsewhere by a share of its way, and falls short of it.
    let share = spread::WAY_SIGMA * 0.05;
    assert!((0.6 * share..1.5 * share).contains(&sure.reach_sigma), "{}", sure.reach_sigma);
    assert_near(
        spread::expected(&[0.1, 0.0, 0.0], &[0.145, 0.0, 0.06])[0],
        0.1 + 0.045 * 0.075 / 0.09,
    );
    assert_eq!(spread::expected(&[0.1, 0.0, 0.0], &[0.1, 0.0, 0.0])[0], 0.1);
    // Of a short way half may be missing.
    let [half, most] = spread::with_way([0.0; 2], 0.004);
    assert!(
        (half - 1.538 * 0.002).abs() < 1e-5 && (most - 2.5 * 0.002).abs() < 1e-5,
        "{half} {most}"
    );
    let [half, _] = spread::with_way([0.0; 2], 0.02);
    assert!((half - 1.538 * 0.006).abs() < 1e-5, "{half}");
    let [half, most] = spread::with_way([0.0, 0.3], 0.05);
    assert!((half - 1.538 * share).abs() < 1e-4 && most > 0.3, "{half} {most}");
    let mut still = Rolled::new(steps(1, [0.0; 5]));
    with(&mut still, 0.0, 0.0);
    let still = still.cost(&goal);
    assert_eq!((still.success_probability, still.reach_sigma, still.cost_90), (0.0, 0.0, 0.0));
    with(&mut rolled, 0.02, 0.05);
    let unsure = rolled.cost(&goal);
    assert_near(unsure.reach, 0.045);
    // To be a success it must be 0.01 or more to the right of that: less than half.
    let chance = unsure.success_probability;
    assert!((0.1..0.45).contains(&chance), "{chance}");
    assert!((0.01..0.022).contains(&unsure.reach_sigma), "{}", unsure.reach_sigma);
    assert!((0.012..0.035).contains(&unsure.cost_90), "{}", unsure.cost_90);
    let careful = rolled.cost(&Goal { kappa: 2.0, leave_weight: 1.0, ..goal.clone() });
    // The larger of 0.02 and 0.05 over the roots of the quantiles of chi squared.
    let leave = 2.0 * 0.05 / 2.500_28;
    assert_near(careful.leave, leave);
    assert_near(careful.cost, 0.045 + 2.0 * unsure.reach_sigma + leave);
    // The more room there is, the surer is success.
    let wide = rolled.cost(&Goal { tolerance: 0.2, ..goal }).success_probability;
    assert_eq!(wide, 1.0);
}

#[test]
fn draws_have_the_two_radii_for_quantiles_and_no_side() {
    let lengths = |half, most| {
        let length = |draw| super::goal::distance(&offset(draw, half, most), &[0.0; 3]);
        let mut lengths: Vec<f64> = (0..N_DRAWS).map(length).collect();
        lengths.sort_by(f64::total_cmp);
        lengths
    };
    let lengths = lengths(1.0, 3.0);
    assert_eq!(lengths.iter().filter(|x| **x <= 1.0).count(), N_DRAWS / 2);
    let within = lengths.iter().filter(|x| **x <= 3.0).count();
    assert_eq!(within, (0.9 * N_DRAWS as f64) as usize + 1, "90 %, rounded to a draw");
    // Radii that differ much, as of what rests and may yet be struck, have no endless tail.
    let last = super::goal::distance(&offset(N_DRAWS - 1, 1e-6, 0.02), &[0.0; 3]);
    assert!((0.02..0.08).contains(&last), "{last} m");
    for axis in 0..3 {
        let mean = (0..N_DRAWS).map(|draw| offset(draw, 1.0, 1.6)[axis]).sum::<f64>();
        assert!((mean / N_DRAWS as f64).abs() < 0.1, "{mean}");
    }
}

#[test]
fn selections_find_the_target_without_the_robot() {
    let target = |select| {
        let goal = Goal::new(select, Reach::Box(zone([0.3; 3], [0.4; 3])));
        Judge::new(&goal, &sight()).map(|judge| judge.target().to_vec())
    };
    assert_eq!(target(about_target()).unwrap(), [0, 1]);
    assert_eq!(target(Select::Body([0.2, 0.0, 0.0])).unwrap(), [0, 1]);
    assert_eq!(target(Select::Body([1.09, 0.0, 0.0])).unwrap(), [3]);
    let far = target(Select::Body([80.6, 0.0, 0.0])).unwrap_err().to_string();
    assert!(far.contains("point: the nearest body is 80.00 m from [80.6, 0.0, 0.0]"), "{far}");
    assert!(target(Select::Body([1.11, 0.0, 0.0])).is_err());
    let mask = |pixels: [bool; 4]| Mask { camera: 0, size: [2, 2], pixels: pixels.to_vec() };
    let marked = target(Select::Pixels(mask([true, false, true, true])));
    assert_eq!(marked.unwrap(), [0, 2], "the robot's pixel and the other camera's are none");
    let told = |select| target(select).unwrap_err().to_string();
    assert!(told(Select::Pixels(mask([false; 4]))).contains("mask: it is empty"));
    assert!(told(Select::Pixels(mask([false, false, false, true]))).contains("mask: none of"));
    let other = Mask { size: [4, 1], ..mask([true; 4]) };
    assert!(told(Select::Pixels(other)).contains("4 x 1 pixels, where the depth image has 2 x 2"));
    let nowhere = Mask { camera: 3, ..mask([true; 4]) };
    assert!(told(Select::Pixels(nowhere)).contains("no depth image of camera 3"));
    let short = Mask { pixels: vec![true], ..mask([true; 4]) };
    assert!(told(Select::Pixels(short)).contains("1 pixels, not 2 x 2"));
    let empty = Select::Region(zone([0.7; 3], [0.8; 3]));
    assert!(told(empty).contains("region: no particle lies in"));
    let blind = Sight { body_of: &[], ..sight() };
    let goal = Goal::new(Select::Body([0.0; 3]), Reach::Box(zone([0.3; 3], [0.4; 3])));
    assert!(Judge::new(&goal, &blind).unwrap_err().to_string().contains("point: no body"));
}

#[test]
fn goals_that_make_no_sense_are_refused_with_the_remedy() {
    let told = |change: fn(&mut Goal)| {
        let mut goal = to_x(0.3);
        change(&mut goal);
        let judged = Judge::new(&goal, &sight());
        judged.err().map_or_else(String::new, |error| error.to_string())
    };
    assert_eq!(told(|_| ()), "");
    for (change, part) in [
        (
            (|g| g.tolerance = f64::NAN) as fn(&mut Goal),
            "goal: tolerance: NaN is not a number from 0",
        ),
        (|g| g.kappa = -1.0, "kappa: -1"),
        (|g| g.kappa = 1.7e308, "000 is more than 1000000: scale all down"),
        (|g| g.leave_weight = 1.1e6, "leave_weight: 1100000 is more than 1000000"),
        (|g| g.reach_weight = 0.0, "all weights are 0: nothing to choose by"),
        (|g| g.clearance = 2.0, "clearance: 2 m is more"),
        (|g| g.keep_out = vec![zone([0.1; 3], [0.0; 3])], "keep_out: min x 0.1 is above max x 0"),
        (|g| g.keep_out = vec![zone([0.0; 3], [0.1; 3]); 65], "65 boxes, at most 64"),
        (|g| g.select = Select::Region(zone([f64::NAN; 3], [1.0; 3])), "region: "),
        (|g| g.select = Select::Body([f64::INFINITY; 3]), "point: "),
        (|g| g.reach = Reach::Box(zone([2.0; 3], [3.0; 3])), "box: [2.500, 2.500, 2.500] lies out"),
        (|g| g.reach = Reach::Cloud(vec![]), "cloud: it has no points"),
        (|g| g.reach = Reach::Cloud(vec![[0.0; 3]; 1025]), "1025 points, at most 1024"),
        (|g| g.reach = Reach::Cloud(vec![[f64::NAN; 3]]), "cloud: a point is not finite"),
        (|g| g.reach = Reach::Cloud(vec![[0.0, 0.0, 2.0]]), "lies outside of the workspace"),
        (
            |g| g.reach = Reach::Pose { rotation: [0.0; 4], translation: [0.0; 3] },
            "the quaternion's norm is 0, not 1",
        ),
        (
            |g| g.reach = Reach::Pose { rotation: [0.0, 0.0, 0.0, 1.0], translation: [9.0; 3] },
            "motion: [9.050, 9.000, 9.000] lies outside",
        ),
    ] {
        let told = told(change);
        assert!(told.contains(part), "'{told}' lacks '{part}'");
    }
}

#[test]
fn a_goal_that_is_reached_is_told_and_shapes_are_held() {
    let judge = |goal: &Goal| Judge::new(goal, &sight()).unwrap();
    assert!(judge(&to_x(-0.5)).is_reached() && !judge(&to_x(0.3)).is_reached());
    let judge = judge(&to_x(0.3));
    let told = |rolled: &Rolled| judge.cost(&rolled.consequence()).unwrap_err().to_string();
    let mut short = Rolled::new(steps(2, [0.0; 5]));
    short.displacements[1].pop();
    assert!(told(&short).contains("particles of a step: expected 5, got 4"));
    let mut robot = Rolled::new(steps(2, [0.0; 5]));
    robot.robot.pop();
    assert!(told(&robot).contains("rows of the robot's points"));
    let mut joints = Rolled::new(steps(1, [0.0; 5]));
    joints.joints = vec![vec![0.0]];
    assert!(told(&joints).contains("joints of a step"));
}
