use super::*;
use forecloud::base::geometry::{Rigid, Vec3, distance, length, minus, plus};
use forecloud::base::random::{draw, uniform};
use forecloud::vision::motion::NO_BODY;
use forecloud::vision::particles::Particles;

const N_TABLE: usize = 3000;
const N_BOX: usize = 300;
const MIDDLE: Vec3 = [0.05, 0.0, 0.12];

/// A grey table, and above it three checked faces of a box, moved by `pose` about its middle; sampled
/// anew by each seed.
fn frame(seed: u64, pose: &Rigid) -> Particles {
    let u = |i: usize, stream: u64| uniform(draw(seed, 0, i as u64, stream));
    let mut cloud = Particles::default();
    cloud.support_m = Some(0.0);
    for i in 0..N_TABLE {
        cloud.positions.push([u(i, 0) - 0.5, u(i, 1) - 0.5, 0.0]);
        cloud.colors.push([0.5; 3]);
    }
    for i in N_TABLE..N_TABLE + N_BOX {
        let (a, b) = (u(i, 0) - 0.5, u(i, 1) - 0.5);
        let local = match (u(i, 2) * 3.0) as u32 {
            0 => [0.14 * a, 0.09 * b, 0.035],
            1 => [0.14 * a, -0.045, 0.07 * b],
            _ => [0.07, 0.09 * a, 0.07 * b],
        };
        let check: i32 = local.iter().map(|x| (x / 0.045).floor() as i32).sum();
        cloud.positions.push(pose.apply(&plus(&MIDDLE, &local)));
        let red = check.rem_euclid(2) == 0;
        cloud.colors.push(if red { [0.8, 0.1, 0.1] } else { [0.7, 0.6, 0.1] });
    }
    cloud
}

/// Frames of a box that flies along x and turns.
fn flight(n: usize) -> (Vec<Particles>, Vec<Rigid>) {
    let poses: Vec<Rigid> = (0..n)
        .map(|t| {
            let t = t as f32;
            Rigid::default().then(&[0.0, 0.0, 0.12 * t], &[0.03 * t, -0.01 * t, 0.0], &MIDDLE)
        })
        .collect();
    (poses.iter().zip(1..).map(|(pose, seed)| frame(seed, pose)).collect(), poses)
}

fn flow(now: &Particles, next: &Particles) -> Flow {
    let (mut labeler, mut flow) = (Labeler::default(), Flow::default());
    let views = [now, next].map(|cloud| View { cloud, common: cloud, robot: &[] });
    labeler.find(views, &[], false, &mut flow).unwrap();
    flow
}

/// Where the box's point `p` of the pose `from` is in the pose `to`.
fn carried(p: &Vec3, from: &Rigid, to: &Rigid) -> Vec3 {
    to.apply(&from.undo(p))
}

#[test]
fn points_go_where_the_next_frame_shows_them() {
    let (frames, poses) = flight(2);
    let flow = flow(&frames[0], &frames[1]);
    let (mut error, mut moved, mut sure) = (0.0, 0.0, 0.0);
    for i in N_TABLE..N_TABLE + N_BOX {
        let p = &frames[0].positions[i];
        let truth = minus(&carried(p, &poses[0], &poses[1]), p);
        error += length(&minus(&flow.motions[i], &truth));
        moved += length(&truth);
        sure += flow.confidences[i] / N_BOX as f32;
    }
    assert!(error < 0.25 * moved, "off by {} of the motion", error / moved);
    assert!(sure > SURE, "{sure}");
    assert!(flow.motions[..N_TABLE].iter().all(|m| *m == [0.0; 3]));
}

#[test]
fn what_is_gone_in_the_next_frame_is_not_sure() {
    let (frames, _) = flight(2);
    let mut gone = frames[1].clone();
    gone.positions.truncate(N_TABLE);
    gone.colors.truncate(N_TABLE);
    let flow_of = flow(&frames[0], &gone);
    assert!(flow_of.confidences[N_TABLE..].iter().all(|&c| c < SURE));
    // Something else in its place: it did not come from there.
    let mut other = frames[1].clone();
    other.colors[N_TABLE..].fill([0.1, 0.1, 0.9]);
    let flow_of = flow(&frames[0], &other);
    let n_sure = flow_of.confidences[N_TABLE..].iter().filter(|&&c| c >= SURE).count();
    assert!(n_sure < N_BOX / 20, "{n_sure} of {N_BOX}");
    assert!(flow(&frames[0], &Particles::default()).confidences.iter().all(|&c| c == 0.0));
}

#[test]
fn points_are_followed_over_steps_and_bodies_stay_rigid() {
    let (frames, poses) = flight(6);
    let flows: Vec<Flow> = frames.windows(2).map(|pair| flow(&pair[0], &pair[1])).collect();
    let followed = |flows: &[Flow]| -> (f32, f32) {
        let sights = frames.iter().zip(flows).map(|(cloud, flow)| Sight::new(cloud, flow).unwrap());
        let chosen: Vec<u32> = (N_TABLE..N_TABLE + N_BOX).map(|i| i as u32).collect();
        let mut tracks = Tracks::default();
        tracks.follow(&chosen, &sights.collect::<Vec<_>>());
        assert_eq!((tracks.positions.len(), tracks.confidences[4].len()), (5, N_BOX));
        let (mut error, mut moved) = (0.0, 0.0);
        for (k, &i) in chosen.iter().enumerate() {
            let p = &frames[0].positions[i as usize];
            let truth = carried(p, &poses[0], &poses[5]);
            error += distance(&tracks.positions[4][k], &truth);
            moved += distance(p, &truth);
        }
        (error / moved, moved / N_BOX as f32)
    };
    let (with_bodies, moved) = followed(&flows);
    assert!(moved > 0.12 && with_bodies < 0.15, "off by {with_bodies} of {moved} m");
    let mut alone = flows.clone();
    alone.iter_mut().for_each(|flow| flow.body_of.fill(NO_BODY));
    let (without, _) = followed(&alone);
    assert!(with_bodies < without, "{with_bodies} {without}");
}

#[test]
fn nothing_is_followed_through_no_frames() {
    let mut tracks = Tracks::default();
    tracks.follow(&[], &[]);
    assert!(tracks.positions.is_empty());
    let (empty, none) = (Particles::default(), Flow::default());
    tracks.follow(&[], &[Sight::new(&empty, &none).unwrap()]);
    assert_eq!(tracks.positions, vec![Vec::<Vec3>::new()]);
    let mut broken = Particles::default();
    broken.positions.push([f32::NAN; 3]);
    assert!(Sight::new(&broken, &none).is_err());
}
