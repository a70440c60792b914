//! What went on against what was predicted goes on, and what rested against it rests: as far as the last
//! steps tell.

use crate::base::geometry::{RigidMotion, Vec3, add};
use crate::engine::motion_class::MotionClass;
use crate::engine::rollout_input::RolloutInput;
use crate::predict::known_motion::fading::Fading;
use crate::predict::track_record::{LAG, Said};
use crate::vision::motion::NO_BODY;

/// Moves particles as their bodies moved; its vectors are kept from one prediction to the next.
#[derive(Debug, Default)]
pub struct GoesOn {
    /// Motion of each body in the step at hand, if it goes on.
    bodies: Vec<Option<RigidMotion>>,
    /// Where each particle is before the step at hand if it goes on (m), `[n]`.
    positions: Vec<Vec3>,
    /// Motion in the first steps as the model predicts it, and if each goes on (m), `[n]`.
    said: Vec<Said>,
    fading: Fading,
}

impl GoesOn {
    /// Puts what the evidence of each particle of `scene` asks for in the place of `displacements` `[n_steps][n]`:
    /// so much of them, so much of going on as its body did, so much of rest. What lies on the robot by
    /// `classes` stays as it is. Each step depends on those before it alone.
    pub fn mix(
        &mut self,
        scene: &RolloutInput,
        classes: &[MotionClass],
        displacements: &mut [Vec<Vec3>],
    ) {
        let start = &scene.start;
        self.said.clear();
        // Shorter roll-outs are not held against what comes.
        if displacements.len() >= LAG {
            self.said.resize(start.positions.len(), Said::default());
        }
        self.fading.begin(scene);
        self.bodies.clone_from(&start.body_motions);
        // What went straight on for some steps is told better by all of them than by the last one.
        for (known, &body) in scene.evidence.iter().zip(&start.body_of) {
            let steady = known.and_then(|known| known.steady);
            if let (Some(way), Some(motion)) = (steady, self.bodies.get_mut(body as usize)) {
                *motion = Some(RigidMotion::shift(way));
            }
        }
        self.positions.clone_from(&start.positions);
        for (step, displacements) in displacements.iter_mut().enumerate() {
            for (i, displacement) in displacements.iter_mut().enumerate() {
                let way = self.go_on(scene, i);
                if let Some(said) = self.said.get_mut(i).filter(|_| step < LAG) {
                    (said[0][step], said[1][step]) = (*displacement, way);
                }
                let known = scene.evidence.get(i).copied().flatten();
                let known = known.filter(|known| (step as u32) < known.until);
                let known = known.filter(|_| classes.get(i) != Some(&MotionClass::Robot));
                let Some(known) = known else { continue };
                let of = (i, start.body_of.get(i).map_or(NO_BODY, |body| *body));
                let class = classes.get(i).copied();
                let model = known.model * self.fading.share(of, class, step, displacement);
                for (x, way) in displacement.iter_mut().zip(way) {
                    *x = model * *x + known.goes_on * way;
                }
            }
            let bodies = self.bodies.iter_mut().flatten();
            bodies.for_each(|motion| *motion = motion.again_on_course());
        }
    }

    /// Moves particle `i` on as its body goes, or as it went itself where it is of none; by how much (m).
    fn go_on(&mut self, scene: &RolloutInput, i: usize) -> Vec3 {
        let start = &scene.start;
        let body = start.body_of.get(i).and_then(|&body| self.bodies.get(body as usize));
        let own = || start.extrapolated_motion.get(i).or_else(|| start.velocities.get(i)).copied();
        let way = match body.and_then(Option::as_ref) {
            Some(body) => body.motion_of(&self.positions[i]),
            None => own().unwrap_or_default(),
        };
        add(&mut self.positions[i], &way);
        way
    }

    /// What was said of the first steps of the last call, `[n]`: by the model, and if each goes on. Empty where
    /// it was shorter.
    pub fn said(&self) -> &[Said] {
        &self.said
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::geometry::{length, minus};
    use crate::engine::rollout_input::Evidence;
    use crate::predict::track_record::{SceneRecord, Seen, TrackRecord};

    const WAY: Vec3 = [0.02, 0.0, 0.0];

    /// Two particles of one body that went on six times although the model had said that it rests.
    fn scene() -> RolloutInput {
        let mut record = TrackRecord::default();
        let seen = Seen {
            motion: WAY,
            turn_rad: 0.0,
            said: [[[0.0; 3]; LAG], [WAY; LAG]],
            squares: [4e-4, 0.0, 4e-4],
        };
        (0..6).for_each(|_| record.add(&seen));
        let mut scene = RolloutInput {
            evidence: vec![record.evidence(&SceneRecord::default()); 2],
            ..RolloutInput::default()
        };
        scene.start.positions = vec![[0.0; 3], [0.1, 0.0, 0.0]];
        scene.start.velocities = vec![WAY; 2];
        scene
    }

    #[test]
    fn what_went_on_goes_on_in_all_steps_and_the_robots_does_not() {
        let mut displacements = vec![vec![[0.0; 3]; 2]; 10];
        let mut goes_on = GoesOn::default();
        goes_on.mix(&scene(), &[MotionClass::Moving, MotionClass::Robot], &mut displacements);
        for step in &displacements {
            assert!((step[0][0] - 0.02).abs() < 1e-4, "{step:?}");
            assert_eq!(step[1], [0.0; 3]);
        }
        assert_eq!(goes_on.said()[0], [[[0.0; 3]; LAG], [WAY; LAG]], "before the record counted");
        // From the step on in which the robot may have come, it is the model's.
        let mut ends = scene();
        ends.evidence.iter_mut().flatten().for_each(|known| known.until = 4);
        let mut until = vec![vec![[0.0; 3]; 2]; 10];
        GoesOn::default().mix(&ends, &[MotionClass::Moving, MotionClass::Robot], &mut until);
        assert_eq!(until[..4], displacements[..4]);
        assert!(until[4..].iter().flatten().all(|way| *way == [0.0; 3]));
        // A shorter roll-out is the beginning of the longer one, and is not held against what comes.
        let mut short = vec![vec![[0.0; 3]; 2]; 2];
        goes_on.mix(&scene(), &[MotionClass::Moving, MotionClass::Robot], &mut short);
        assert_eq!(short, displacements[..2]);
        assert!(goes_on.said().is_empty());
    }

    #[test]
    fn without_a_record_it_is_the_models() {
        let mut scene = scene();
        scene.evidence.clear();
        let mut displacements = vec![vec![[0.0, 0.0, -0.01]; 2]; 4];
        GoesOn::default().mix(&scene, &[], &mut displacements);
        assert!(displacements.iter().flatten().all(|way| *way == [0.0, 0.0, -0.01]));
    }

    #[test]
    fn what_went_straight_on_goes_on_by_the_mean_of_its_steps() {
        let mut scene = scene();
        scene.start.body_of = vec![0; 2];
        let last = RigidMotion::fit(&[[0.0; 3]; 3], &[[0.03, 0.01, 0.0]; 3]);
        scene.start.body_motions = vec![Some(last)];
        let steady = scene.evidence[0].and_then(|known| known.steady).expect("six equal steps");
        assert!(minus(&steady, &WAY).iter().all(|x| x.abs() < 1e-6));
        let mut displacements = vec![vec![[0.0; 3]; 2]; 10];
        GoesOn::default().mix(&scene, &[MotionClass::Moving; 2], &mut displacements);
        for step in displacements.iter().flatten() {
            assert!(minus(step, &WAY).iter().all(|x| x.abs() < 1e-4), "{step:?}");
        }
    }

    #[test]
    fn what_did_not_come_as_said_fades_unless_it_falls_or_the_robot_comes() {
        let mut scene = scene();
        let known = scene.evidence[0].map(|known| Evidence {
            model: 1.0,
            goes_on: 0.0,
            rests: 0.0,
            keeps: 0.5,
            ..known
        });
        scene.evidence = vec![known; 2];
        scene.start.body_of = vec![0, 1];
        scene.start.body_motions = vec![None; 2];
        let mixed = |scene: &RolloutInput, class, way: Vec3| {
            let mut displacements = vec![vec![way; 2]; 3];
            GoesOn::default().mix(scene, &[class; 2], &mut displacements);
            let share = |step: &Vec<Vec3>| [0, 1].map(|i| length(&step[i]) / length(&way));
            displacements.iter().map(share).collect::<Vec<_>>()
        };
        let (aside, down) = ([0.01, 0.0, 0.0], [0.0, 0.0, -0.01]);
        let fades = [[1.0; 2], [0.5; 2], [0.25; 2]];
        assert_eq!(mixed(&scene, MotionClass::Moving, down), fades);
        assert_eq!(mixed(&scene, MotionClass::Flying, aside), fades, "a hand holds it");
        assert_eq!(mixed(&scene, MotionClass::Flying, down), [[1.0; 2]; 3]);
        // A link is far now, and comes near the second in the last step.
        scene.start.kinematic_links = vec![0];
        scene.kinematic = [2.0, 1.0, 0.8, 0.5, 0.19].map(|x| vec![[x, 0.0, 0.0]]).to_vec();
        let told = mixed(&scene, MotionClass::Moving, aside);
        assert_eq!(told, [[1.0; 2], [0.5, 1.0], [0.25, 1.0]]);
    }

    #[test]
    fn what_stands_on_a_turntable_follows_its_circle() {
        // 0.3 rad a step about the origin, at a radius of 0.1 m.
        let turn = |angle: f32, p: &Vec3| {
            let (sin, cos) = angle.sin_cos();
            [cos * p[0] - sin * p[1], sin * p[0] + cos * p[1], p[2]]
        };
        let now: Vec<Vec3> =
            [[0.1, 0.0, 0.0], [0.12, 0.0, 0.0], [0.1, 0.02, 0.0], [0.1, 0.0, 0.02]].to_vec();
        let next: Vec<Vec3> = now.iter().map(|p| turn(0.3, p)).collect();
        let mut scene = scene();
        scene.evidence = vec![scene.evidence[0].map(|known| Evidence { steady: None, ..known }); 4];
        scene.start.positions = now.clone();
        scene.start.body_of = vec![0; 4];
        scene.start.body_motions = vec![Some(RigidMotion::fit(&now, &next))];
        let mut displacements = vec![vec![[0.0; 3]; 4]; 10];
        GoesOn::default().mix(&scene, &[MotionClass::Moving; 4], &mut displacements);
        for (i, p) in now.iter().enumerate() {
            let mut at = *p;
            displacements.iter().for_each(|step| add(&mut at, &step[i]));
            let off = minus(&at, &turn(3.0, p));
            assert!(off.iter().all(|x| x.abs() < 2e-3), "{off:?}");
        }
    }
}
