//! Scenes of the demo recording, of any size.

use std::path::Path;

use anyhow::{Context, ensure};
use forecloud::engine::graph::walks::WalkSeed;
use forecloud::engine::model::ModelConfig;
use forecloud::engine::scene::Scene;
use forecloud::robot::kinematics::{Robot, Spread};
use forecloud::vision::cloud::{Cloud, Workspace};
use forecloud::vision::frames::FramesConfig;
use forecloud::vision::particles::Particles;
use forecloud_bag::recording::Recording;

/// How far the joints go in a step (rad).
const JOINT_STEP: f64 = 0.02;

/// Clouds of all frames in one, and the robot.
pub struct Demo {
    cloud: Cloud,
    urdf: String,
}

impl Demo {
    /// Reads the recording.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let recording = Recording::open(path, FramesConfig::default())?;
        let (mut all, mut cloud) = (Cloud::default(), Cloud::default());
        recording.play(|frame, _| -> forecloud::Result<()> {
            cloud.from_cameras(&frame.cameras, &Workspace::default())?;
            all.positions.extend_from_slice(&cloud.positions);
            all.colors.extend_from_slice(&cloud.colors);
            Ok(())
        })?;
        all.sources = (0..all.positions.len() as u32).collect();
        let urdf = recording.robot_description()?.context("the demo has no robot description")?;
        Ok(Self { cloud: all, urdf })
    }

    /// Exactly `n` particles: of one frame's points, and of several frames' where one has too few.
    pub fn particles(&self, n: usize) -> anyhow::Result<Particles> {
        let mut particles = Particles::default();
        particles.sample(&self.cloud, n, 1, 0, &Workspace::default());
        ensure!(particles.len() == n, "the demo has only {} points", particles.len());
        Ok(particles)
    }

    /// A scene of about `n_tokens` tokens, two thirds of them particles and one third history, with a
    /// robot that moves, for `n_steps`.
    pub fn scene(
        &self,
        n_tokens: usize,
        model: &ModelConfig,
        n_steps: usize,
    ) -> anyhow::Result<Scene> {
        let n_others = n_tokens.saturating_sub(3 * model.n_kinematic);
        let now = self.particles(2 * n_others / 3)?;
        let mut scene = Scene { walk_seed: WalkSeed::default(), ..Scene::default() };
        scene.set_particles(&now, &now, n_others - now.len());
        let mut robot = Robot::with_spread(&self.urdf, model.n_robot(), "world", Spread::Tips)?;
        let n_joints = robot.joint_names().len();
        for t in 0..n_steps + 2 {
            let mut points = Vec::new();
            robot.place(&vec![JOINT_STEP * t as f64; n_joints], &mut points)?;
            scene.kinematic.push(points);
        }
        scene.start.kinematic_links = robot.links().collect();
        scene.start.kinematic_stride = model.kinematic_detail;
        Ok(scene)
    }
}
