//! `forecloud/msg/Prediction`.

use super::cdr::CdrReader;
use super::header::{Header, read_time};
use super::stamp::Stamp;
use crate::base::error::Result;

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
    /// `n_steps * n_particles`: radius within which half of all errors lie (m); empty where the model
    /// does not tell.
    pub sigma: Vec<f32>,
    /// The same for nine of ten errors.
    pub sigma_90: Vec<f32>,
    /// Stamp of the earlier prediction that was held against this frame; zero for none.
    pub held_against: Stamp,
    /// Version of the message: [`Self::VERSION`].
    pub version: u8,
    /// Numbers of the objects, ascending.
    pub object_ids: Vec<u64>,
    /// `n_particles`: which of these each particle is of, counted from 1; 0 for none.
    pub objects: Vec<u16>,
    /// `n_particles`: what each particle is, as [`crate::predict::objects::ParticleKind`].
    pub kinds: Vec<u8>,
    /// Stamp of the first prediction that numbers hang on.
    pub objects_since: Stamp,
    /// Predictions that they hang on, this one included.
    pub n_followed: u64,
}

impl Prediction {
    /// Of the message as it is.
    pub const VERSION: u8 = 1;

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
            sigma: reader.f32s("sigma")?,
            sigma_90: reader.f32s("sigma_90")?,
            held_against: read_time(&mut reader, ["held_against.sec", "held_against.nanosec"])?,
            version: reader.u8("version")?,
            object_ids: reader.u64s("object_ids")?,
            objects: reader.u16s("objects")?,
            kinds: reader.u8s("kinds")?,
            objects_since: read_time(&mut reader, ["objects_since.sec", "objects_since.nanosec"])?,
            n_followed: reader.u64("n_followed")?,
        };
        if let Some((field, problem)) = prediction.problem() {
            return Err(reader.error(field, problem));
        }
        reader.finish()?;
        Ok(prediction)
    }

    /// Serializes the message: CDR, little endian, as ROS publishes it.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = CdrWriter::default();
        writer.stamp(self.header.stamp);
        writer.string(&self.header.frame_id);
        writer.u32(self.step_secs.to_bits());
        writer.u32(self.n_steps);
        writer.u32(self.n_particles);
        writer.align(8);
        writer.bytes.extend(self.seed.to_le_bytes());
        writer.string(&self.model_hash);
        writer.words(self.positions.iter().map(|value| value.to_bits()));
        writer.words(self.displacements.iter().map(|value| value.to_bits()));
        writer.u32(self.colors.len() as u32);
        writer.bytes.extend(&self.colors);
        writer.words(self.sources.iter().copied());
        writer.words(self.sigma.iter().map(|value| value.to_bits()));
        writer.words(self.sigma_90.iter().map(|value| value.to_bits()));
        writer.stamp(self.held_against);
        writer.bytes.push(self.version);
        writer.u32(self.object_ids.len() as u32);
        if !self.object_ids.is_empty() {
            writer.align(8);
        }
        writer.bytes.extend(self.object_ids.iter().flat_map(|id| id.to_le_bytes()));
        writer.u32(self.objects.len() as u32);
        writer.bytes.extend(self.objects.iter().flat_map(|object| object.to_le_bytes()));
        writer.u32(self.kinds.len() as u32);
        writer.bytes.extend(&self.kinds);
        writer.stamp(self.objects_since);
        writer.align(8);
        writer.bytes.extend(self.n_followed.to_le_bytes());
        writer.finish()
    }

    fn problem(&self) -> Option<(&'static str, String)> {
        let n_particles = u128::from(self.n_particles);
        let told = |sigmas: &Vec<f32>| match sigmas.len() {
            0 => 0,
            _ => n_particles * self.n_steps as u128,
        };
        let lengths = [
            ("positions", self.positions.len(), n_particles * 3),
            ("displacements", self.displacements.len(), n_particles * 3 * self.n_steps as u128),
            ("colors", self.colors.len(), n_particles * 3),
            ("sources", self.sources.len(), n_particles),
            ("objects", self.objects.len(), n_particles),
            ("kinds", self.kinds.len(), n_particles),
            ("sigma", self.sigma.len(), told(&self.sigma)),
            ("sigma_90", self.sigma_90.len(), told(&self.sigma_90)),
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

/// Bytes after the encapsulation header; values are aligned to their own size.
#[derive(Default)]
struct CdrWriter {
    bytes: Vec<u8>,
}

impl CdrWriter {
    fn align(&mut self, n_bytes: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(n_bytes), 0);
    }

    fn u32(&mut self, value: u32) {
        self.align(4);
        self.bytes.extend(value.to_le_bytes());
    }

    fn stamp(&mut self, stamp: Stamp) {
        let (sec, nanosec) = stamp.parts();
        self.align(4);
        self.bytes.extend(sec.to_le_bytes());
        self.u32(nanosec);
    }

    fn string(&mut self, text: &str) {
        self.u32(text.len() as u32 + 1);
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
    }

    fn words(&mut self, values: impl ExactSizeIterator<Item = u32>) {
        self.u32(values.len() as u32);
        values.for_each(|value| self.bytes.extend(value.to_le_bytes()));
    }

    fn finish(self) -> Vec<u8> {
        [&[0, 1, 0, 0], self.bytes.as_slice()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::encode::CdrWriter;

    #[test]
    fn what_is_encoded_is_as_ros_lays_it_out() {
        for frame_id in ["world", "", "odom"] {
            let message = Prediction {
                header: Header { stamp: Stamp::from_parts(-7, 8), frame_id: frame_id.into() },
                step_secs: 0.1,
                n_steps: 2,
                n_particles: 1,
                seed: u64::MAX - 1,
                model_hash: "0123456789abcdef".into(),
                positions: vec![1.0, -0.0, f32::MIN_POSITIVE],
                displacements: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
                colors: vec![255, 0, 7],
                sources: vec![1 << 24 | 5],
                sigma: vec![0.5, 0.75],
                sigma_90: vec![1.5, 1.75],
                held_against: Stamp::from_parts(-8, 999_999_999),
                version: Prediction::VERSION,
                object_ids: vec![3, u64::MAX],
                objects: vec![2],
                kinds: vec![4],
                objects_since: Stamp::from_parts(-9, 1),
                n_followed: 1 << 40,
            };
            let m = &message;
            let plain = CdrWriter::new(false).header(-7, 8, frame_id).f32(0.1).u32(2).u32(1);
            let plain = plain.u64(m.seed).string(&m.model_hash).f32s(&m.positions);
            let plain = plain.f32s(&m.displacements).u8s(&m.colors).u32s(&m.sources);
            let plain = plain.f32s(&m.sigma).f32s(&m.sigma_90).i32(-8).u32(999_999_999);
            let plain = plain.u8(1).u64s(&m.object_ids).u16s(&m.objects).u8s(&m.kinds);
            let plain = plain.i32(-9).u32(1).u64(m.n_followed).finish();
            let bytes = message.encode();
            let differ = bytes.iter().zip(&plain).filter(|(a, b)| a != b);
            // The plain writer fills padding with another value.
            assert!(differ.into_iter().all(|pair| pair == (&0, &0xAA)));
            assert_eq!(bytes.len(), plain.len());
            assert_eq!(Prediction::decode(&bytes).unwrap(), message);
        }
    }
}
