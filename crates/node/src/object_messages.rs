//! Objects as ROS messages.

use r2r::forecloud::msg::{ObjectPath, ObjectPaths};
use r2r::geometry_msgs::msg::{Point, Pose, PoseWithCovariance, Quaternion, Vector3};
use r2r::std_msgs::msg::Header;
use r2r::vision_msgs::msg::{
    BoundingBox3D, Detection3D, Detection3DArray, ObjectHypothesis, ObjectHypothesisWithPose,
};

use super::publish::time_message;
use forecloud::predict::objects::{Object, ObjectPose};

/// `~/objects`: a detection for each object. Its `id` is the object's number, the class of its only result what
/// most of its particles are, with a score of 1: nothing here tells what kind of thing it is.
pub fn detections(objects: &[Object], header: &Header) -> Detection3DArray {
    let detection = |object: &Object| {
        let pose = object.path.first().map(pose_with_covariance).unwrap_or_default();
        let hypothesis = ObjectHypothesis { class_id: object.kind.name().into(), score: 1.0 };
        Detection3D {
            header: header.clone(),
            bbox: BoundingBox3D { center: pose.pose.clone(), size: size(object) },
            results: vec![ObjectHypothesisWithPose { hypothesis, pose }],
            id: object.followed.number.to_string(),
        }
    };
    Detection3DArray { header: header.clone(), detections: objects.iter().map(detection).collect() }
}

/// `~/object_paths`: see msg/ObjectPaths.msg.
pub fn paths(objects: &[Object], header: &Header, step_secs: f32) -> ObjectPaths {
    let path = |object: &Object| ObjectPath {
        id: object.followed.number,
        kind: object.kind as u8,
        n_particles: object.n_particles as u32,
        since: time_message(object.followed.since),
        size: size(object),
        poses: object.path.iter().map(pose_with_covariance).collect(),
    };
    ObjectPaths { header: header.clone(), step_secs, objects: objects.iter().map(path).collect() }
}

/// Sides of its box (m).
pub fn size(object: &Object) -> Vector3 {
    let [x, y, z] = object.size.map(f64::from);
    Vector3 { x, y, z }
}

/// A pose as a message.
pub fn pose(at: &ObjectPose) -> Pose {
    let (place, turn) = (at.pose.translation.vector, at.pose.rotation.coords);
    Pose {
        position: Point { x: place.x, y: place.y, z: place.z },
        orientation: Quaternion { x: turn.x, y: turn.y, z: turn.z, w: turn.w },
    }
}

/// The same with its variances on the diagonal; all zeros where they are not known.
pub fn pose_with_covariance(at: &ObjectPose) -> PoseWithCovariance {
    let mut covariance = vec![0.0; 36];
    for (i, variance) in at.variances.iter().flatten().enumerate() {
        covariance[7 * i] = *variance;
    }
    PoseWithCovariance { pose: pose(at), covariance }
}
