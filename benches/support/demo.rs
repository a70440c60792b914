//! The demo recording's cloud.

use std::path::Path;

use anyhow::Context;
use forecloud::base::instruction_set::InstructionSet;
use forecloud::vision::cloud::{Cloud, Workspace};
use forecloud::vision::frames::FramesConfig;
use forecloud::vision::particles::Particles;
use forecloud_bag::recording::Recording;

/// Particles of the demo recording, and the cloud that they are drawn from.
pub struct Demo {
    /// Of the first frame.
    pub cloud: Cloud,
}

impl Demo {
    /// Reads the recording.
    pub fn open() -> anyhow::Result<Self> {
        // Figures of other instructions than were asked for would be worse than none.
        InstructionSet::from_environment()?;
        // In the workspace's folder, which is that of the package or above it.
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut paths = package.ancestors().map(|folder| folder.join("data/demo_tumble"));
        let path = paths.find(|path| path.exists()).context("no data/demo_tumble")?;
        let recording = Recording::open(&path, FramesConfig::default())?;
        let mut cloud = Cloud::default();
        recording.play(|frame, _| -> forecloud::Result<()> {
            if cloud.is_empty() {
                cloud.from_cameras(&frame.cameras, &Workspace::default())?;
            }
            Ok(())
        })?;
        Ok(Self { cloud })
    }

    /// Exactly `n` particles.
    pub fn particles(&self, n: usize) -> anyhow::Result<Particles> {
        let mut particles = Particles::default();
        particles.sample(&self.cloud, n, 1, 0, &Workspace::default());
        anyhow::ensure!(particles.len() == n, "the cloud has only {} points", particles.len());
        Ok(particles)
    }
}
