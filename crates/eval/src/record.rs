//! Predictions written as the node publishes them.

use std::collections::BTreeMap;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use mcap::records::MessageHeader;

use forecloud::engine::model::Model;
use forecloud::message::{self, Header};
use forecloud::predict::predictor::Prediction;
use forecloud::{Error, Result};
use forecloud_bag::outputs::{GENERATOR, Kind, Outputs, Unfinished};

/// The node's topic.
const TOPIC: &str = "/forecloud/prediction";
/// The message and those in it, as MCAP wants them of `ros2msg`, so that viewers can read it.
const SCHEMA: &str = concat!(
    include_str!("../../../msg/Prediction.msg"),
    "================================================================================\n",
    "MSG: std_msgs/Header\n",
    "builtin_interfaces/Time stamp\n",
    "string frame_id\n",
    "================================================================================\n",
    "MSG: builtin_interfaces/Time\n",
    "int32 sec\n",
    "uint32 nanosec\n",
);

/// Writes the predictions of one recording to an MCAP file; times of the log are the stamps.
pub struct Recorder {
    path: PathBuf,
    writer: mcap::Writer<BufWriter<Unfinished>>,
    channel_id: u16,
    template: message::Prediction,
    n_messages: u32,
}

impl Recorder {
    /// Begins a file that is at `path` once it is finished, for what `model` predicts in
    /// `world_frame`; one that Forecloud did not write is not replaced.
    ///
    /// # Errors
    /// As [`Outputs::create`]; [`Error::Io`] if the file can't be written.
    pub fn create(
        path: &Path,
        outputs: &Outputs,
        model: &Model,
        world_frame: &str,
    ) -> Result<Self> {
        let failed = |cause| Error::Io { path: path.to_owned(), cause };
        let file = outputs.create(path, Kind::Predictions)?;
        // One thread and no version in it: the same predictions, the same bytes.
        let options = mcap::WriteOptions::new().profile("ros2").library(GENERATOR);
        let options = options.compression_threads(0);
        let begin = || -> mcap::McapResult<_> {
            let mut writer = options.create(BufWriter::new(file))?;
            let schema =
                writer.add_schema("forecloud/msg/Prediction", "ros2msg", SCHEMA.as_bytes())?;
            let channel_id = writer.add_channel(schema, TOPIC, "cdr", &BTreeMap::new())?;
            Ok((writer, channel_id))
        };
        let (writer, channel_id) = begin().map_err(|error| failed(io(error)))?;
        let template = message::Prediction {
            header: Header { frame_id: world_frame.to_owned(), ..Header::default() },
            step_secs: model.config.step_secs as f32,
            model_hash: model.hash.clone(),
            ..message::Prediction::default()
        };
        Ok(Self { path: path.to_owned(), writer, channel_id, template, n_messages: 0 })
    }

    /// Writes one more prediction.
    ///
    /// # Errors
    /// As [`Recorder::create`].
    pub fn add(&mut self, prediction: &Prediction) -> Result<()> {
        let time = prediction.stamp.nanos().max(0) as u64;
        let header = MessageHeader {
            channel_id: self.channel_id,
            sequence: self.n_messages,
            log_time: time,
            publish_time: time,
        };
        self.n_messages += 1;
        let data = self.message(prediction).encode();
        let written = self.writer.write_to_known_channel(&header, &data);
        written.map_err(|error| Error::Io { path: self.path.clone(), cause: io(error) })
    }

    /// Ends the file.
    ///
    /// # Errors
    /// As [`Recorder::create`].
    pub fn finish(mut self) -> Result<()> {
        let failed = |cause| Error::Io { path: self.path.clone(), cause };
        self.writer.finish().map_err(|error| failed(io(error)))?;
        // Flushed by hand: what is left to the end of the program fails in silence.
        let file = self.writer.into_inner().into_inner().map_err(|e| failed(e.into_error()))?;
        file.finish()
    }

    fn message(&self, prediction: &Prediction) -> message::Prediction {
        let particles = &prediction.particles;
        let flat = |rows: &[[f32; 3]]| rows.as_flattened().to_vec();
        let told = |level| prediction.told_sigmas(level).iter().flatten().copied().collect();
        let byte = |channel: &f32| (channel * 255.0).round() as u8;
        let (object_ids, objects) = prediction.objects.indexed();
        message::Prediction {
            header: Header { stamp: prediction.stamp, ..self.template.header.clone() },
            n_steps: prediction.displacements.len() as u32,
            n_particles: particles.len() as u32,
            seed: prediction.seed,
            positions: flat(&particles.positions),
            displacements: prediction.displacements.iter().flat_map(|step| flat(step)).collect(),
            colors: particles.colors.iter().flatten().map(byte).collect(),
            sources: particles.sources.clone(),
            sigma: told(0),
            sigma_90: told(1),
            held_against: prediction.held_against.unwrap_or_default(),
            version: message::Prediction::VERSION,
            object_ids,
            objects,
            kinds: prediction.objects.kinds.iter().map(|&kind| kind as u8).collect(),
            objects_since: prediction.objects.since,
            n_followed: prediction.objects.n_followed,
            ..self.template.clone()
        }
    }
}

fn io(error: mcap::McapError) -> std::io::Error {
    match error {
        mcap::McapError::Io(error) => error,
        other => std::io::Error::other(other),
    }
}
