use super::*;
use crate::base::geometry::{length, plus};
use crate::base::random::{draw, uniform};

/// A grey table and, above it, a checked box turned by `turn` about its middle and moved by
/// `shift`; each cloud sampled anew.
fn scene(seed: u64, turn: Vec3, shift: Vec3) -> Particles {
    painted(seed, turn, shift, [0.0; 3])
}

/// The same, the checks slid along the box's faces.
fn painted(seed: u64, turn: Vec3, shift: Vec3, slide: Vec3) -> Particles {
    let u = |i: u64, stream: u64| uniform(draw(seed, 0, i, stream));
    let mut cloud = Particles::default();
    for i in 0..N_TABLE as u64 {
        cloud.positions.push([u(i, 0) - 0.5, u(i, 1) - 0.5, 0.0]);
        cloud.colors.push([0.5, 0.5, 0.5]);
    }
    let pose = Rigid::default().then(&turn, &shift, &MIDDLE);
    for i in N_TABLE as u64..(N_TABLE + N_BOX) as u64 {
        let (a, b) = (u(i, 0) - 0.5, u(i, 1) - 0.5);
        // Three faces of a box of 14 by 9 by 7 cm.
        let local = match (u(i, 2) * 3.0) as u32 {
            0 => [0.14 * a, 0.09 * b, 0.035],
            1 => [0.14 * a, -0.045, 0.07 * b],
            _ => [0.07, 0.09 * a, 0.07 * b],
        };
        let is_red =
            minus(&local, &slide).iter().map(|x| (x / 0.045).floor() as i32).sum::<i32>() % 2 == 0;
        cloud.positions.push(pose.apply(&plus(&MIDDLE, &local)));
        cloud.colors.push(if is_red { [0.8, 0.1, 0.1] } else { [0.7, 0.6, 0.1] });
    }
    cloud.support_m = Some(0.0);
    cloud
}

const N_TABLE: usize = 4000;
const N_BOX: usize = 240;
const MIDDLE: Vec3 = [0.1, 0.0, 0.15];
const BLUE: Vec3 = [0.2, 0.4, 0.8];

/// What is estimated of all points of `now`, beside a robot of one link.
fn with_robot(before: &Particles, now: &Particles, robot: [&[Vec3]; 2]) -> PastMotion {
    let (mut found, links) = (PastMotion::default(), vec![0; robot[0].len()]);
    let clouds = [before, now];
    let frames = TwoFrames { particles: now, clouds, robot, links: &links, camera_moved: false };
    MotionEstimator::default().estimate(&frames, &mut found);
    found
}

fn estimate(before: &Particles, now: &Particles) -> (Vec<Vec3>, Vec<f32>, Vec<Vec3>) {
    let found = with_robot(before, now, [&[], &[]]);
    (found.motions, found.confidences, found.extrapolated_motion)
}

#[test]
fn finds_the_rigid_motion_of_an_object_and_the_rest_of_the_table() {
    let still = [0.0; 3];
    let cases = [
        (still, [0.05, -0.03, 0.02]),
        (still, still),
        // About its own middle: near the axis it is taken for resting.
        ([0.0, 0.0, 0.3], still),
        ([0.0, 0.0, 0.3], [0.02, 0.0, 0.0]),
        ([0.2, -0.2, 0.1], [-0.05, 0.03, 0.01]),
    ];
    for ((turn, shift), seed) in
        cases.into_iter().flat_map(|case| [(case, 1), (case, 11), (case, 21)])
    {
        let (before, now) = (scene(seed, still, still), scene(seed + 1, turn, shift));
        let (motions, sure, extrapolated_motion) = estimate(&before, &now);
        let pose = Rigid::default().then(&turn, &shift, &MIDDLE);
        // Straight on, and turning about where the middle is now.
        let again = Rigid::default().then(&turn, &shift, &plus(&MIDDLE, &shift));
        let (mut error, mut extrapolation_error, mut moved) = (0.0, 0.0, 0.0);
        for i in N_TABLE..N_TABLE + N_BOX {
            let p = now.positions[i];
            let truth = minus(&p, &pose.undo(&p));
            error += length(&minus(&motions[i], &truth)) / N_BOX as f32;
            extrapolation_error +=
                length(&minus(&extrapolated_motion[i], &minus(&again.apply(&p), &p)))
                    / N_BOX as f32;
            moved += length(&truth) / N_BOX as f32;
        }
        let bound = 0.4 * moved + 5e-4;
        let case = format!("{turn:?}, {shift:?}, seed {seed}: {moved} m");
        assert!(error < bound, "{case}, off by {error} m");
        assert!(
            extrapolation_error < bound,
            "{case}, extrapolated motion off by {extrapolation_error} m"
        );
        assert!(motions[..N_TABLE].iter().all(|m| *m == still));
        let mean = sure[N_TABLE..].iter().sum::<f32>() / N_BOX as f32;
        assert!(mean > 0.5, "{case}, confidence {mean}");
    }
}

#[test]
fn what_was_not_there_is_unknown() {
    let (mut before, now) = (scene(1, [0.0; 3], [0.0; 3]), scene(2, [0.0; 3], [0.0; 3]));
    before.positions.truncate(N_TABLE);
    before.colors.truncate(N_TABLE);
    let (motions, sure, _) = estimate(&before, &now);
    assert!(sure[N_TABLE..].iter().all(|&c| c == 0.0));
    assert!(motions[N_TABLE..].iter().all(|&m| m == [0.0; 3]));
    // Nothing at all before, or now.
    let (_, sure, _) = estimate(&Particles::default(), &now);
    assert!(sure.len() == now.len() && sure.iter().all(|&c| c == 0.0));
    assert!(estimate(&now, &Particles::default()).0.is_empty());
}

#[test]
fn a_link_s_points_move_as_the_link_does() {
    let (turn, shift) = ([0.0, 0.0, 0.2], [0.0, 0.06, 0.0]);
    let (before, now) = (scene(1, [0.0; 3], [0.0; 3]), scene(2, turn, shift));
    let pose = Rigid::default().then(&turn, &shift, &MIDDLE);
    let links: Vec<Vec3> = now.positions[N_TABLE..].iter().step_by(12).copied().collect();
    let back: Vec<Vec3> = links.iter().map(|p| pose.undo(p)).collect();
    let motions = with_robot(&before, &now, [&back, &links]).motions;
    let errors = (N_TABLE..N_TABLE + N_BOX).map(|i| {
        let p = now.positions[i];
        length(&minus(&motions[i], &minus(&p, &pose.undo(&p))))
    });
    let mean = errors.sum::<f32>() / N_BOX as f32;
    assert!(mean < 0.001, "off by {mean} m");
}

/// A table and on it a box, 20 by 17 by 12 cm, its middle at `x`; of it its top, of the colour `top`, and a blue
/// side are seen.
fn large_box(seed: u64, x: f32, top: Vec3) -> Particles {
    let u = |i: u64, stream: u64| uniform(draw(seed, 0, i, stream));
    let mut cloud = Particles::default();
    for i in 0..N_TABLE as u64 + 1500 {
        let (a, b) = (u(i, 0) - 0.5, u(i, 1) - 0.5);
        let (position, color) = if i < N_TABLE as u64 {
            ([a, b, 0.0], [0.5, 0.5, 0.5])
        } else if u(i, 2) < 0.5 {
            ([x + 0.2 * a, 0.17 * b, 0.12], top)
        } else {
            ([x + 0.2 * a, -0.085, 0.06 + 0.12 * b], BLUE)
        };
        cloud.positions.push(position);
        cloud.colors.push(color);
    }
    cloud.support_m = Some(0.0);
    cloud
}

#[test]
fn a_large_box_of_one_colour_moves_as_one() {
    // Patch by patch, more than eight tenths of it seem to rest.
    for (seed, shift) in [(1, 0.015), (2, 0.02), (11, -0.03), (21, 0.0)] {
        let (motions, ..) =
            estimate(&large_box(seed, 0.0, BLUE), &large_box(seed + 1, shift, BLUE));
        let of_box = || motions[N_TABLE..].iter();
        let off = of_box().filter(|m| length(&minus(m, &[shift, 0.0, 0.0])) > 0.006).count();
        let share = off as f32 / of_box().count() as f32;
        assert!(share < 0.3, "{share} of the box is off by more than 6 mm of {shift} m");
    }
}

#[test]
fn a_large_box_of_two_colours_that_moves_slowly_does_not_rest() {
    // Neither face alone tells; together they do.
    for (seed, shift) in [(9, -0.008f32), (11, 0.008), (17, -0.01), (21, 0.012), (31, 0.0)] {
        let yellow = [0.9, 0.8, 0.1];
        let (before, now) = (large_box(seed, 0.0, yellow), large_box(seed + 1, shift, yellow));
        let (motions, ..) = estimate(&before, &now);
        let off = motions[N_TABLE..].iter().map(|m| length(&minus(m, &[shift, 0.0, 0.0])));
        let off = off.sum::<f32>() / (motions.len() - N_TABLE) as f32;
        assert!(off <= 0.45 * shift.abs(), "off by {off} of {shift} m");
    }
}

/// A table of one colour, whose height nobody tells, and a speckled box of 8 cm on it, its middle at `x`.
fn box_on_unknown_table(seed: u64, x: f32) -> Particles {
    let u = |i: u64, stream: u64| uniform(draw(seed, 0, i, stream));
    let mut cloud = Particles::default();
    for i in 0..N_TABLE as u64 / 2 + 1500 {
        let (a, b) = (u(i, 0) - 0.5, u(i, 1) - 0.5);
        if i < N_TABLE as u64 / 2 {
            cloud.positions.push([0.6 * a, 0.6 * b, 0.0]);
            cloud.colors.push([0.5, 0.5, 0.5]);
            continue;
        }
        let mut local = [0.08 * a, 0.08 * b, 0.08 * (u(i, 4) - 0.5)];
        local[(u(i, 2) * 3.0) as usize] = if u(i, 3) < 0.5 { 0.04 } else { -0.04 };
        let is_red = local.iter().map(|x| (90.0 * x).sin()).product::<f32>() > 0.0;
        cloud.positions.push([local[0] + x, local[1], local[2] + 0.04]);
        cloud.colors.push(if is_red { [0.9, 0.2, 0.1] } else { [0.1, 0.3, 0.9] });
    }
    cloud
}

#[test]
fn a_table_that_nobody_tells_of_does_not_go_along_with_what_slides_on_it() {
    for (seed, shift) in [(1, 0.02f32), (3, 0.02), (5, -0.012), (7, 0.03)] {
        let (before, now) =
            (box_on_unknown_table(seed, 0.0), box_on_unknown_table(seed + 1, shift));
        let (motions, ..) = estimate(&before, &now);
        let (table, of_box) = motions.split_at(N_TABLE / 2);
        let share = |of: &[Vec3], way: f32| {
            let off = of.iter().filter(|m| length(&minus(m, &[way, 0.0, 0.0])) > 0.004).count();
            off as f32 / of.len() as f32
        };
        let [of_table, of_box] = [share(table, 0.0), share(of_box, shift)];
        assert!(of_table < 0.15 && of_box < 0.3, "{seed}: off by 4 mm: {of_table}, {of_box}");
    }
}

/// A wall of one colour, 40 by 12 cm, as a camera 1 m before it sees it; with a box in between, if
/// there is one.
fn wall(seed: u64, has_box: bool) -> Particles {
    let u = |i: u64, stream: u64| uniform(draw(seed, 0, i, stream));
    let mut cloud = Particles::default();
    cloud.eyes.extend([[f32::NAN; 3], [0.0, -1.0, 0.06]]);
    for i in 0..3000 {
        let p = [0.4 * (u(i, 0) - 0.5), 0.0, 0.12 * u(i, 1)];
        // The box is 6 cm wide, 20 cm before the wall.
        let is_behind = has_box && p[0].abs() < 0.0375;
        cloud.positions.push(if is_behind { [0.8 * p[0], -0.2, p[2]] } else { p });
        cloud.colors.push(if is_behind { [0.8, 0.1, 0.1] } else { [0.5, 0.5, 0.5] });
        cloud.sources.push(1 << 24 | i as u32);
    }
    cloud
}

#[test]
fn what_comes_into_view_is_at_rest() {
    let (before, now) = (wall(1, true), wall(2, false));
    let false_motion = |before: &Particles| {
        let (motions, ..) = estimate(before, &now);
        motions.iter().map(length).sum::<f32>() / motions.len() as f32
    };
    let error = false_motion(&before);
    assert!(error < 0.001, "{error} m");
    // Where it is not known what the camera could see, the wall seems to move in from beside.
    let mut blind = before.clone();
    blind.eyes[1] = [f32::NAN; 3];
    let blind = false_motion(&blind);
    assert!(blind > 0.002, "{blind} m");
}

#[test]
fn colour_does_not_outvote_geometry() {
    let still = [0.0; 3];
    let false_motion = |settings: Settings| {
        let mut sum = 0.0;
        for (seed, slide) in [(1, 0.03), (11, -0.03), (21, 0.02)] {
            let slide = [slide, 0.0, 0.0];
            let (before, now) = (scene(seed, still, still), painted(seed + 1, still, still, slide));
            let frames = TwoFrames {
                particles: &now,
                clouds: [&before, &now],
                robot: [&[], &[]],
                links: &[],
                camera_moved: false,
            };
            let mut found = PastMotion::default();
            MotionEstimator::new(settings).unwrap().estimate(&frames, &mut found);
            sum += found.motions[N_TABLE..].iter().map(length).sum::<f32>() / N_BOX as f32;
        }
        sum / 3.0
    };
    // Colours that come late slide over what they are on; its edges have not moved.
    let error = false_motion(Settings::default());
    assert!(error < 0.003, "{error} m");
    let by_color = false_motion(Settings { geometry_share: 1e-6, ..Settings::default() });
    assert!(by_color > 0.008, "{by_color} m by colour alone");
}

#[test]
fn what_flew_far_is_found() {
    let still = [0.0; 3];
    let error = |settings: Settings| {
        let (mut sum, mut n) = (0.0, 0.0);
        for (seed, shift) in [(1, [0.12, 0.16, 0.03]), (11, [0.0, -0.2, 0.08])] {
            let (before, now) = (scene(seed, still, still), scene(seed + 1, still, shift));
            let frames = TwoFrames {
                particles: &now,
                clouds: [&before, &now],
                robot: [&[], &[]],
                links: &[],
                camera_moved: false,
            };
            let mut found = PastMotion::default();
            MotionEstimator::new(settings).unwrap().estimate(&frames, &mut found);
            sum += found.motions[N_TABLE..].iter().map(|m| length(&minus(m, &shift))).sum::<f32>();
            n += N_BOX as f32;
        }
        sum / n
    };
    let far = error(Settings::default());
    assert!(far < 0.03, "{far} m of 0.2");
    let near = error(Settings { ill_cost: 2.0, ..Settings::default() });
    assert!(near > 0.1, "{near} m where it is not looked for");
}

#[test]
fn any_number_of_threads_finds_the_same() {
    let before = scene(1, [0.0; 3], [0.0; 3]);
    let now = scene(2, [0.2, -0.2, 0.1], [-0.05, 0.03, 0.01]);
    let with = |n| {
        let threads = rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap();
        threads.install(|| estimate(&before, &now))
    };
    assert!(with(1) == with(3));
}
