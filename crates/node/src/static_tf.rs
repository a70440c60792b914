//! Where a camera stands that was placed by what it sees, on `/tf_static` for all others.

use r2r::geometry_msgs::msg::{Quaternion, Transform, TransformStamped, Vector3};
use r2r::std_msgs::msg::Header;
use r2r::tf2_msgs::msg::TFMessage;
use r2r::{Publisher, QosProfile};

use forecloud::message;

/// The publisher, made with the first transform: a node that places nothing is no source of
/// transforms.
#[derive(Default)]
pub struct StaticTf(Option<Publisher<TFMessage>>);

impl StaticTf {
    /// Publishes a transform, latched.
    ///
    /// # Errors
    /// What rcl says.
    pub fn publish(
        &mut self,
        node: &mut r2r::Node,
        transform: &message::TransformStamped,
    ) -> anyhow::Result<()> {
        let failed = |error: r2r::Error| anyhow::anyhow!("publisher of /tf_static: {error}");
        let publisher = match self.0.take() {
            Some(publisher) => publisher,
            None => {
                let qos = QosProfile::default().keep_last(1).reliable().transient_local();
                node.create_publisher("/tf_static", qos).map_err(failed)?
            }
        };
        let publisher = self.0.insert(publisher);
        publisher.publish(&TFMessage { transforms: vec![to_ros(transform)] }).map_err(failed)
    }

    /// Publishes no transform in place of the one that was: who comes later gets none. Those who heard
    /// it keep it until another one of the same frame comes.
    ///
    /// # Errors
    /// What rcl says.
    pub fn withdraw(&mut self) -> anyhow::Result<()> {
        let Some(publisher) = self.0.take() else { return Ok(()) };
        let sent = publisher.publish(&TFMessage::default());
        // Kept, as what is latched goes with its publisher; not taken again.
        self.0 = Some(publisher);
        sent.map_err(|error| anyhow::anyhow!("publisher of /tf_static: {error}"))
    }

    /// Takes its publisher from `node`, and with it what is latched.
    pub fn end(self, node: &mut r2r::Node) {
        self.0.into_iter().for_each(|publisher| node.destroy_publisher(publisher));
    }
}

fn to_ros(transform: &message::TransformStamped) -> TransformStamped {
    let message::TransformStamped { header, child_frame_id, parent_from_child: pose } = transform;
    let (sec, nanosec) = header.stamp.parts();
    let stamp = r2r::builtin_interfaces::msg::Time { sec, nanosec };
    let (t, q) = (pose.translation, pose.rotation);
    TransformStamped {
        header: Header { stamp, frame_id: header.frame_id.clone() },
        child_frame_id: child_frame_id.clone(),
        transform: Transform {
            translation: Vector3 { x: t.x, y: t.y, z: t.z },
            rotation: Quaternion { x: q.i, y: q.j, z: q.k, w: q.w },
        },
    }
}
