//! `~/occupied_points`: what the scene will occupy, for planners and costmaps.

use r2r::sensor_msgs::msg::{PointCloud2, PointField};
use r2r::std_msgs::msg::Header;
use r2r::{Publisher, QosProfile};

use forecloud::predict::occupied::{OccupiedPoint, OccupiedSettings};
use forecloud::predict::predictor::Prediction;

/// Fields of a point, each a float32.
const FIELDS: [&str; 5] = ["x", "y", "z", "time", "sigma"];
/// Bytes of a point.
const POINT_STEP: usize = 4 * FIELDS.len();

/// The publisher and its settings.
pub struct Occupied {
    publisher: Publisher<PointCloud2>,
    settings: OccupiedSettings,
    /// How far ahead (s); 0 for all of the prediction.
    until_secs: f64,
}

impl Occupied {
    /// The publisher: reliable, so that both reliable and best-effort readers get it.
    ///
    /// # Errors
    /// What rcl says.
    pub fn new(node: &mut r2r::Node, voxel_m: f64, until_secs: f64) -> anyhow::Result<Self> {
        let qos = QosProfile::default().keep_last(10).reliable();
        let publisher = node
            .create_publisher("~/occupied_points", qos)
            .map_err(|error| anyhow::anyhow!("publisher of ~/occupied_points: {error}"))?;
        let settings = OccupiedSettings { voxel_m: voxel_m as f32, ..OccupiedSettings::default() };
        Ok(Self { publisher, settings, until_secs })
    }

    /// Takes the publisher from `node`.
    pub fn end(self, node: &mut r2r::Node) {
        node.destroy_publisher(self.publisher);
    }

    /// Whether somebody subscribes.
    pub fn is_heard(&self) -> bool {
        // Where rcl can't tell, rather once too often.
        self.publisher.get_inter_process_subscription_count().map_or(true, |n| n > 0)
    }

    /// Publishes what `prediction` says, if somebody subscribes; one that was cut short, as far as it goes.
    ///
    /// # Errors
    /// What rcl says, or as [`Prediction::occupied`].
    pub fn publish(&self, prediction: &Prediction, header: &Header) -> anyhow::Result<()> {
        if !self.is_heard() {
            return Ok(());
        }
        let horizon_secs = prediction.displacements.len() as f64 * prediction.step_secs;
        let until_secs = match self.until_secs {
            0.0 => horizon_secs,
            secs => secs.min(horizon_secs),
        };
        let points = prediction.occupied(until_secs, &self.settings)?;
        self.publisher.publish(&message(&points, header.clone()))?;
        Ok(())
    }
}

fn message(points: &[OccupiedPoint], header: Header) -> PointCloud2 {
    let mut data = Vec::with_capacity(points.len() * POINT_STEP);
    for OccupiedPoint { position: [x, y, z], time_secs, sigma_m } in points {
        [x, y, z, time_secs, sigma_m]
            .into_iter()
            .for_each(|value| data.extend(value.to_le_bytes()));
    }
    let field = |(name, offset): (&&str, u32)| PointField {
        name: (*name).to_owned(),
        offset,
        datatype: PointField::FLOAT32 as u8,
        count: 1,
    };
    PointCloud2 {
        header,
        height: 1,
        width: points.len() as u32,
        fields: FIELDS.iter().zip((0..).step_by(4)).map(field).collect(),
        is_bigendian: false,
        point_step: POINT_STEP as u32,
        row_step: data.len() as u32,
        data,
        is_dense: true,
    }
}
