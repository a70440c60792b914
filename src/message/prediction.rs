//! `forecloud/msg/Prediction`.

use super::cdr::CdrReader;
use super::header::Header;
use crate::error::Result;

/// Where each particle will be; rows of three numbers are x y z in the header's frame, metres.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Prediction {
    /// Time of the newest observation, and the world frame.
    pub header: Header,
    /// Seconds from one step to the next.
    pub step_secs: f32,
    /// Predicted steps.
    pub n_steps: u32,
    /// Particles.
    pub n_particles: u32,
    /// Seed of the prediction's draws.
    pub seed: u64,
    /// Hash of the model that predicted.
    pub model_hash: String,
    /// `n_particles * 3`: where the particles are at the stamp.
    pub positions: Vec<f32>,
    /// `n_steps * n_particles * 3`: how far each particle moves in each step.
    pub displacements: Vec<f32>,
    /// `n_particles * 3`: red, green and blue.
    pub colors: Vec<u8>,
    /// `n_particles`: camera index in the upper 8 bits, pixel index in the lower 24.
    pub sources: Vec<u32>,
}

impl Prediction {
    /// Decodes a serialized message.
    ///
    /// # Errors
    /// [`crate::Error::Message`] if it is truncated or its lengths don't belong together.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = CdrReader::new(bytes, "forecloud/msg/Prediction")?;
        let prediction = Self {
            header: Header::read(&mut reader)?,
            step_secs: reader.f32("step_secs")?,
            n_steps: reader.u32("n_steps")?,
            n_particles: reader.u32("n_particles")?,
            seed: reader.u64("seed")?,
            model_hash: reader.string("model_hash")?,
            positions: reader.f32s("positions")?,
            displacements: reader.f32s("displacements")?,
            colors: reader.u8s("colors")?,
            sources: reader.u32s("sources")?,
        };
        if let Some((field, problem)) = prediction.problem() {
            return Err(reader.error(field, problem));
        }
        reader.finish()?;
        Ok(prediction)
    }

    fn problem(&self) -> Option<(&'static str, String)> {
        let n_particles = u128::from(self.n_particles);
        let lengths = [
            ("positions", self.positions.len(), n_particles * 3),
            ("displacements", self.displacements.len(), n_particles * 3 * self.n_steps as u128),
            ("colors", self.colors.len(), n_particles * 3),
            ("sources", self.sources.len(), n_particles),
        ];
        let (field, got, expected) =
            lengths.into_iter().find(|&(_, got, expected)| got as u128 != expected)?;
        let Self { n_particles, n_steps, .. } = self;
        let problem = format!(
            "expected {expected} values for {n_particles} particles and {n_steps} steps, got {got}"
        );
        Some((field, problem))
    }
}
