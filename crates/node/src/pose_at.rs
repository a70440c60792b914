//! `~/pose_at`: where an object will be, by the newest prediction.

use r2r::forecloud::srv::PoseAt::{Request, Response};
use r2r::geometry_msgs::msg::PoseWithCovarianceStamped;

use super::object_messages::pose_with_covariance;
use super::publish::{Origin, time_message};
use super::rollouts::PATIENCE;
use forecloud::message::Stamp;
use forecloud::predict::objects::{Object, ObjectPose};
use forecloud::predict::predictor::Prediction;

/// Numbers that a refusal names.
const MAX_NAMED: usize = 20;

/// Answers from `prediction`, whose frame came `age_secs` ago; `rests` says why none is made at present.
pub fn answer(
    request: &Request,
    prediction: Option<&Prediction>,
    age_secs: Option<f64>,
    rests: Option<&str>,
    origin: &Origin,
) -> Response {
    let (Some(prediction), Some(age_secs)) = (prediction, age_secs) else {
        let why = rests.unwrap_or("/diagnostics says what is missing");
        return refused(format!("nothing was predicted yet: {why}"));
    };
    let step_secs = origin.step_secs();
    let latest = prediction.stamp.plus_secs(prediction.displacements.len() as f64 * step_secs);
    let told = Response {
        predicted_from: time_message(prediction.stamp),
        age_secs: age_secs as f32,
        latest: time_message(latest),
        ..Response::default()
    };
    if let Some(why) = rests.filter(|_| age_secs > step_secs).map(str::to_owned).or_else(|| {
        let why = "do the cameras still send? /diagnostics says what is missing".to_owned();
        (age_secs > PATIENCE.as_secs_f64()).then_some(why)
    }) {
        let message = format!("the newest prediction is {age_secs:.1} s old: {why}");
        return Response { message, ..told };
    }
    match find(request, prediction, latest, step_secs) {
        Err(message) => Response { message, ..told },
        Ok((id, pose)) => Response {
            success: true,
            message: format!("object {id}, predicted from {} s", prediction.stamp),
            id,
            pose: PoseWithCovarianceStamped {
                header: origin.header(asked(request)),
                pose: pose_with_covariance(&pose),
            },
            ..told
        },
    }
}

/// The answer to a request that can't be fulfilled.
pub fn refused(why: impl Into<String>) -> Response {
    Response { message: why.into(), ..Response::default() }
}

fn asked(request: &Request) -> Stamp {
    Stamp::from_parts(request.time.sec, request.time.nanosec)
}

/// The object that is asked for, and its pose then; else why there is none.
fn find(
    request: &Request,
    prediction: &Prediction,
    latest: Stamp,
    step_secs: f64,
) -> Result<(u64, ObjectPose), String> {
    let objects = prediction.objects();
    let point = [request.point.x, request.point.y, request.point.z];
    if request.id == 0 && !point.iter().all(|x| x.is_finite()) {
        return Err("`point` is not finite: send metres in the world frame".into());
    }
    let object = match request.id {
        0 => Prediction::nearest_object(&objects, point),
        id => objects.iter().find(|object| object.followed.number == id),
    };
    let object = object.ok_or_else(|| lacking(request.id, &objects))?;
    let time = asked(request);
    let steps = time.secs_since(prediction.stamp) / step_secs;
    // Times are whole nanoseconds: the last step counts as within.
    let last = object.path.len() as f64 - 1.0;
    let steps = if steps > last && steps < last + 1e-6 { last } else { steps };
    let pose = object.pose_after(steps).ok_or_else(|| {
        format!(
            "{time} s is not within the prediction, which tells of {} s to {latest} s",
            prediction.stamp
        )
    })?;
    Ok((object.followed.number, pose))
}

fn lacking(id: u64, objects: &[Object]) -> String {
    if objects.is_empty() {
        return "no object is seen".into();
    }
    let named = objects.iter().take(MAX_NAMED).map(|object| object.followed.number.to_string());
    let more = if objects.len() > MAX_NAMED { ", …" } else { "" };
    let named = named.collect::<Vec<_>>().join(", ");
    format!("object {id} is not seen; those that are: {named}{more}")
}
