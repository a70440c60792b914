//! Predictions as ROS messages.

use std::time::Instant;

use r2r::builtin_interfaces::msg::Time;
use r2r::forecloud::msg::{ObjectPaths, Prediction as PredictionMsg, Timing as TimingMsg};
use r2r::sensor_msgs::msg::{PointCloud2, PointField};
use r2r::std_msgs::msg::Header;
use r2r::vision_msgs::msg::Detection3DArray;
use r2r::visualization_msgs::msg::MarkerArray;
use r2r::{Publisher, QosProfile};

use super::object_frames::ObjectFrames;
use super::occupied::Occupied;
use super::parameters::NodeConfig;
use super::safety::{Safety, SpeedSettings};
use super::{markers, object_messages};

use forecloud::engine::model::Model;
use forecloud::message::Stamp;
use forecloud::predict::predictor::Prediction;

/// What is the same in all predictions of a node.
#[derive(Debug, Clone)]
pub struct Origin {
    world_frame: String,
    step_secs: f32,
    model_hash: String,
}

impl Origin {
    /// Of what `model` predicts in `world_frame`.
    pub fn new(model: &Model, world_frame: &str) -> Self {
        Self {
            world_frame: world_frame.to_owned(),
            step_secs: model.config.step_secs as f32,
            model_hash: model.hash.clone(),
        }
    }

    /// A prediction as a message.
    pub fn message(&self, prediction: &Prediction) -> PredictionMsg {
        PredictionMsg {
            header: self.header(prediction.stamp),
            step_secs: self.step_secs,
            model_hash: self.model_hash.clone(),
            ..prediction_message(prediction)
        }
    }

    /// Time between two steps (s).
    pub fn step_secs(&self) -> f64 {
        f64::from(self.step_secs)
    }

    /// The header of what is told of `stamp`.
    pub fn header(&self, stamp: Stamp) -> Header {
        Header { stamp: time_message(stamp), frame_id: self.world_frame.clone() }
    }
}

/// A time as a message.
pub fn time_message(stamp: Stamp) -> Time {
    let (sec, nanosec) = stamp.parts();
    Time { sec, nanosec }
}

/// The node's outputs.
pub struct Outputs {
    origin: Origin,
    prediction: Publisher<PredictionMsg>,
    points: Publisher<PointCloud2>,
    motion: Publisher<MarkerArray>,
    motion_min_m: f32,
    timing: Publisher<TimingMsg>,
    safety: Safety,
    occupied: Occupied,
    objects: Publisher<Detection3DArray>,
    object_paths: Publisher<ObjectPaths>,
    object_markers: Publisher<MarkerArray>,
    object_frames: Option<ObjectFrames>,
}

impl Outputs {
    /// Creates the publishers: reliable, so that both reliable and best-effort readers get them.
    ///
    /// # Errors
    /// What rcl says, with the topic.
    pub fn new(node: &mut r2r::Node, origin: Origin, config: &NodeConfig) -> anyhow::Result<Self> {
        let qos = QosProfile::default().keep_last(10).reliable();
        let failed = |topic: &'static str| {
            move |error: r2r::Error| anyhow::anyhow!("publisher of {topic}: {error}")
        };
        Ok(Self {
            origin,
            prediction: node
                .create_publisher("~/prediction", qos.clone())
                .map_err(failed("~/prediction"))?,
            points: node
                .create_publisher("~/predicted_points", qos.clone())
                .map_err(failed("~/predicted_points"))?,
            motion: node.create_publisher("~/motion", qos.clone()).map_err(failed("~/motion"))?,
            motion_min_m: config.motion_min_m as f32,
            safety: Safety::new(node, SpeedSettings::new(config))?,
            occupied: Occupied::new(node, config.occupied_voxel_m, config.occupied_secs)?,
            timing: node.create_publisher("~/timing", qos.clone()).map_err(failed("~/timing"))?,
            objects: node
                .create_publisher("~/objects", qos.clone())
                .map_err(failed("~/objects"))?,
            object_paths: node
                .create_publisher("~/object_paths", qos.clone())
                .map_err(failed("~/object_paths"))?,
            object_markers: node
                .create_publisher("~/object_markers", qos)
                .map_err(failed("~/object_markers"))?,
            object_frames: ObjectFrames::new(node, config)?,
        })
    }

    /// What is the same in all predictions.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Takes all publishers from `node`.
    pub fn end(self, node: &mut r2r::Node) {
        let Self {
            prediction,
            points,
            motion,
            timing,
            safety,
            occupied,
            objects,
            object_paths,
            object_markers,
            object_frames,
            ..
        } = self;
        node.destroy_publisher(prediction);
        node.destroy_publisher(points);
        node.destroy_publisher(motion);
        node.destroy_publisher(timing);
        safety.end(node);
        occupied.end(node);
        node.destroy_publisher(objects);
        node.destroy_publisher(object_paths);
        node.destroy_publisher(object_markers);
        object_frames.into_iter().for_each(|frames| frames.end(node));
    }

    /// Whether somebody subscribes predictions.
    pub fn are_heard(&self) -> bool {
        let counts = [
            self.prediction.get_inter_process_subscription_count(),
            self.points.get_inter_process_subscription_count(),
            self.motion.get_inter_process_subscription_count(),
            self.objects.get_inter_process_subscription_count(),
            self.object_paths.get_inter_process_subscription_count(),
            self.object_markers.get_inter_process_subscription_count(),
        ];
        // Where rcl can't tell, rather one prediction too many.
        counts.into_iter().any(|count| count.map_or(true, |n| n > 0))
            || self.safety.is_heard()
            || self.occupied.is_heard()
            || self.object_frames.as_ref().is_some_and(ObjectFrames::are_heard)
    }

    /// Predictions so far say nothing of what comes: frames were forgotten, or predicting is paused.
    pub fn invalidate(&self) {
        self.safety.invalidate();
    }

    /// Publishes a prediction on all topics that somebody hears, then what it cost; returns its latency (ms).
    ///
    /// `timing` comes with all but its header and the times that end with publishing.
    pub fn publish(
        &self,
        prediction: &Prediction,
        mut timing: TimingMsg,
        arrived: Instant,
    ) -> anyhow::Result<f32> {
        let start = Instant::now();
        let header = self.origin.header(prediction.stamp);
        // First what somebody may brake by.
        self.safety.tell(prediction, &header, arrived);
        self.prediction.publish(&self.origin.message(prediction))?;
        if self.points.get_inter_process_subscription_count()? > 0 {
            self.points.publish(&points_message(prediction, header.clone()))?;
        }
        if self.motion.get_inter_process_subscription_count()? > 0 {
            let step_secs = f64::from(self.origin.step_secs);
            self.motion.publish(&markers::motion(
                prediction,
                &header,
                self.motion_min_m,
                step_secs,
            ))?;
        }
        self.occupied.publish(prediction, &header)?;
        self.publish_objects(prediction, &header, arrived)?;
        timing.header = header;
        timing.publish_ms = start.elapsed().as_secs_f32() * 1e3;
        timing.latency_ms = arrived.elapsed().as_secs_f32() * 1e3;
        self.timing.publish(&timing)?;
        Ok(timing.latency_ms)
    }

    /// Publishes the objects on `~/objects`, `~/object_paths` and `~/object_markers` and as tf frames, as far as
    /// somebody subscribes.
    fn publish_objects(
        &self,
        prediction: &Prediction,
        header: &Header,
        arrived: Instant,
    ) -> r2r::Result<()> {
        let frames = self.object_frames.as_ref().filter(|frames| frames.are_heard());
        let heard = [
            self.objects.get_inter_process_subscription_count()? > 0,
            self.object_paths.get_inter_process_subscription_count()? > 0,
            self.object_markers.get_inter_process_subscription_count()? > 0,
        ];
        if heard == [false; 3] && frames.is_none() {
            return Ok(());
        }
        let (objects, step_secs) = (prediction.objects(), self.origin.step_secs);
        if heard[0] {
            self.objects.publish(&object_messages::detections(&objects, header))?;
        }
        if heard[1] {
            self.object_paths.publish(&object_messages::paths(&objects, header, step_secs))?;
        }
        if heard[2] {
            let secs = f64::from(step_secs);
            self.object_markers.publish(&markers::objects(&objects, header, secs))?;
        }
        let secs = f64::from(step_secs);
        frames.map_or(Ok(()), |frames| frames.publish(&objects, header, secs, arrived))
    }
}

/// `forecloud/msg/Prediction` (see msg/Prediction.msg) without what its origin tells.
fn prediction_message(prediction: &Prediction) -> PredictionMsg {
    let (object_ids, objects) = prediction.objects.indexed();
    PredictionMsg {
        seed: prediction.seed,
        n_steps: prediction.displacements.len() as u32,
        n_particles: prediction.particles.positions.len() as u32,
        positions: prediction.particles.positions.as_flattened().to_vec(),
        displacements: prediction
            .displacements
            .iter()
            .flat_map(|step| step.as_flattened())
            .copied()
            .collect(),
        colors: prediction.particles.colors.iter().flatten().map(|&c| to_byte(c)).collect(),
        sources: prediction.particles.sources.clone(),
        sigma: prediction.told_sigmas(0).concat(),
        sigma_90: prediction.told_sigmas(1).concat(),
        held_against: prediction.held_against.map(time_message).unwrap_or_default(),
        version: PredictionMsg::VERSION as u8,
        object_ids,
        objects,
        kinds: prediction.objects.kinds.iter().map(|&kind| kind as u8).collect(),
        objects_since: time_message(prediction.objects.since),
        n_followed: prediction.objects.n_followed,
        ..PredictionMsg::default()
    }
}

/// Bytes of a point of `~/predicted_points`: nine fields of four bytes.
const POINT_STEP: usize = 36;

/// `~/predicted_points`: the particles where they will be, step after step.
///
/// x, y, z: the position at the step, metres. rgb: the colour, packed as PCL does. dx, dy, dz: the
/// displacement during the step, metres. step: 1 to n_steps. sigma: half of all errors are no larger,
/// metres; not a number of models that don't tell.
fn points_message(prediction: &Prediction, header: Header) -> PointCloud2 {
    let n_points = prediction.displacements.len() * prediction.particles.positions.len();
    let mut data = Vec::with_capacity(n_points * POINT_STEP);
    let mut positions = prediction.particles.positions.clone();
    for (displacements, step) in prediction.displacements.iter().zip(1_u32..) {
        let sigmas = prediction.told_sigmas(0).get(step as usize - 1);
        let points = positions.iter_mut().zip(displacements).zip(&prediction.particles.colors);
        for (i, ((position, displacement), color)) in points.enumerate() {
            for (x, dx) in position.iter_mut().zip(displacement) {
                *x += dx;
                data.extend(x.to_le_bytes());
            }
            let [r, g, b] = color.map(to_byte);
            data.extend([b, g, r, 0]);
            displacement.iter().for_each(|dx| data.extend(dx.to_le_bytes()));
            data.extend(step.to_le_bytes());
            let sigma = sigmas.and_then(|sigmas| sigmas.get(i)).copied().unwrap_or(f32::NAN);
            data.extend(sigma.to_le_bytes());
        }
    }
    PointCloud2 {
        header,
        height: 1,
        width: n_points as u32,
        fields: fields(),
        is_bigendian: false,
        point_step: POINT_STEP as u32,
        row_step: data.len() as u32,
        data,
        is_dense: true,
    }
}

fn fields() -> Vec<PointField> {
    let names = ["x", "y", "z", "rgb", "dx", "dy", "dz", "step", "sigma"];
    let field = |(name, offset): (&str, u32)| PointField {
        name: name.to_owned(),
        offset,
        datatype: if name == "step" { PointField::UINT32 as u8 } else { PointField::FLOAT32 as u8 },
        count: 1,
    };
    names.into_iter().zip((0..).step_by(4)).map(field).collect()
}

/// A colour channel, 0 to 1, as 0 to 255.
fn to_byte(channel: f32) -> u8 {
    (channel * 255.0).round() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prediction() -> Prediction {
        let mut prediction = Prediction {
            stamp: Stamp::from_parts(7, 8),
            seed: 9,
            displacements: vec![vec![[0.5, 0.0, 0.0], [0.0; 3]], vec![[0.25, 0.0, -1.0], [0.0; 3]]],
            sigmas: [vec![vec![0.1, 0.2], vec![0.3, 0.4]], vec![vec![1.1, 1.2], vec![1.3, 1.4]]],
            ..Prediction::default()
        };
        prediction.particles.positions = vec![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]];
        prediction.particles.colors = vec![[1.0, 0.5, 0.0], [0.0, 0.0, 2.0]];
        prediction.particles.sources = vec![3, 1 << 24 | 5];
        prediction
    }

    #[test]
    fn prediction_holds_steps_one_after_the_other() {
        let origin =
            Origin { world_frame: "world".into(), step_secs: 0.1, model_hash: "abc".into() };
        let message = origin.message(&prediction());
        assert_eq!((message.header.stamp.sec, message.header.stamp.nanosec), (7, 8));
        assert_eq!((&message.header.frame_id[..], &message.model_hash[..]), ("world", "abc"));
        assert_eq!((message.step_secs, message.seed), (0.1, 9));
        assert_eq!((message.n_steps, message.n_particles), (2, 2));
        assert_eq!(message.positions, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(message.displacements[6..9], [0.25, 0.0, -1.0]);
        assert_eq!(message.colors, [255, 128, 0, 0, 0, 255]);
        assert_eq!(message.sources, [3, 1 << 24 | 5]);
        assert_eq!(message.sigma, [0.1, 0.2, 0.3, 0.4]);
        assert_eq!(message.sigma_90, [1.1, 1.2, 1.3, 1.4]);
        // What a model says that was not calibrated is nobody's measure.
        let mut plain = prediction();
        plain.sigmas[1].clear();
        assert!(origin.message(&plain).sigma.is_empty());
    }

    #[test]
    fn points_are_where_the_roll_out_leads() {
        let message = points_message(&prediction(), Header::default());
        assert_eq!((message.width, message.row_step), (4, 4 * 36));
        let point = &message.data[2 * POINT_STEP..3 * POINT_STEP]; // first particle, second step
        let number = |i: usize| f32::from_le_bytes(point[4 * i..4 * i + 4].try_into().unwrap());
        assert_eq!([number(0), number(1), number(2)], [1.75, 2.0, 2.0]);
        assert_eq!(point[12..16], [0, 128, 255, 0]);
        assert_eq!([number(4), number(5), number(6)], [0.25, 0.0, -1.0]);
        assert_eq!(point[28..32], 2_u32.to_le_bytes());
        assert_eq!(number(8), 0.3);
        let offsets: Vec<u32> = message.fields.iter().map(|field| field.offset).collect();
        assert_eq!(offsets, [0, 4, 8, 12, 16, 20, 24, 28, 32]);
    }
}
