use super::encode::CdrWriter;
use super::samples::{camera_info, image, prediction, samples, start_of_tf, trajectory};
use super::*;
use crate::base::error::{Error, Result};
use nalgebra::{Point3, UnitQuaternion, Vector3};

/// Decodes `bytes` as the type called `name` and shows the outcome as text.
fn decode(name: &str, bytes: &[u8]) -> Result<String> {
    Ok(match name {
        "image" => format!("{:?}", Image::decode(bytes)?),
        "camera_info" => format!("{:?}", CameraInfo::decode(bytes)?),
        "joint_state" => format!("{:?}", JointState::decode(bytes)?),
        "joint_trajectory" => format!("{:?}", JointTrajectory::decode(bytes)?),
        "tf" => format!("{:?}", TfMessage::decode(bytes)?),
        "pose_array" => format!("{:?}", PoseArray::decode(bytes)?),
        "string" => format!("{:?}", StringMessage::decode(bytes)?),
        "prediction" => format!("{:?}", Prediction::decode(bytes)?),
        "point_cloud2" => format!("{:?}", PointCloud2::decode(bytes)?),
        name if name.starts_with("compressed") => {
            format!("{:?}", CompressedImage::decode(bytes)?)
        }
        other => panic!("no type called {other}"),
    })
}

fn sample(name: &str) -> Vec<u8> {
    let (_, bytes) = samples(false).into_iter().find(|&(n, _)| n == name).expect("a sample");
    bytes
}

/// The problem and the field of the error that decoding must give.
fn problem(name: &str, bytes: &[u8]) -> (String, &'static str) {
    match decode(name, bytes) {
        Err(Error::Message { problem, field, .. }) => (problem, field),
        other => panic!("expected a message error, got {other:?}"),
    }
}

#[test]
fn both_byte_orders_give_the_same_values() {
    for ((name, little), (_, big)) in samples(false).into_iter().zip(samples(true)) {
        assert_ne!(little, big, "{name}");
        let little = decode(name, &little).expect(name);
        let big = decode(name, &big).expect(name);
        assert_eq!(little, big.replace("is_bigendian: true", "is_bigendian: false"), "{name}");
    }
}

#[test]
fn values_come_back() {
    for big_endian in [false, true] {
        let stamp = Stamp::from_nanos(12_345_000_000);
        let header = Header { stamp, frame_id: "world".into() };
        let of = |wanted: &str| {
            let mut all = samples(big_endian).into_iter();
            all.find(|&(name, _)| name == wanted).expect("a sample").1
        };
        let image = Image::decode(&of("image")).unwrap();
        assert_eq!((image.width, image.height, image.step), (3, 2, 10));
        assert_eq!(image.header, header);
        assert_eq!(image.row(1), Some(&[10, 11, 12, 13, 14, 15, 16, 17, 18][..]));
        assert_eq!(image.row(2), None);
        let info = CameraInfo::decode(&of("camera_info")).unwrap();
        assert_eq!(
            (info.width, info.k[2], info.d),
            (640, 320.0, vec![0.1, -0.05, 1e-3, 1e-3, 0.0])
        );
        let state = JointState::decode(&of("joint_state")).unwrap();
        assert_eq!(state.names, ["a", "joint"]);
        assert_eq!((state.positions, state.efforts), (vec![0.5, -1.5], vec![1.0, 2.0]));
        let plan = JointTrajectory::decode(&of("joint_trajectory")).unwrap();
        assert_eq!(plan.points[1].time_from_start_nanos, 100_000_000);
        assert_eq!(plan.points[1].positions, [0.25]);
        let tf = TfMessage::decode(&of("tf")).unwrap();
        let moved = tf.transforms[0].parent_from_child * Point3::new(1.0, 0.0, 0.0);
        assert!((moved - Point3::new(0.1, 0.8, 0.3)).norm() < 1e-12, "{moved}");
        let quarter = UnitQuaternion::from_axis_angle(&Vector3::z_axis(), 90f64.to_radians());
        let poses = PoseArray::decode(&of("pose_array")).unwrap().poses;
        assert!(poses[0].rotation.angle_to(&quarter) < 1e-12);
        assert_eq!(StringMessage::decode(&of("string")).unwrap().data, "größe");
        let prediction = Prediction::decode(&of("prediction")).unwrap();
        assert_eq!((prediction.seed, prediction.n_steps), (42, 2));
        assert_eq!(prediction.displacements[5], -0.125);
        assert_eq!(prediction.sources, [1 << 24 | 77]);
        assert_eq!((prediction.sigma[1], prediction.sigma_90[1]), (0.02, 0.04));
        assert_eq!(prediction.held_against, Stamp::from_parts(12, 245_000_000));
        assert_eq!((prediction.object_ids, prediction.objects), (vec![7], vec![1]));
        assert_eq!((prediction.kinds, prediction.n_followed), (vec![3], 9));
        assert_eq!(prediction.objects_since, Stamp::from_parts(11, 5));
    }
}

#[test]
fn every_truncation_is_an_error() {
    for (name, bytes) in samples(false).into_iter().chain(samples(true)) {
        for n in 0..bytes.len() {
            let outcome = decode(name, &bytes[..n]);
            assert!(
                matches!(outcome, Err(Error::Message { .. })),
                "{name} cut at {n}: {outcome:?}"
            );
        }
    }
}

#[test]
fn padding_is_accepted_and_more_is_not() {
    for (name, mut bytes) in samples(false) {
        bytes.extend([0; 7]);
        decode(name, &bytes).expect(name);
        bytes.push(0);
        assert_eq!(problem(name, &bytes).1, "end");
    }
}

#[test]
fn a_huge_count_is_refused_before_allocating() {
    let bytes = CdrWriter::new(false).u32(u32::MAX).finish();
    assert_eq!(problem("tf", &bytes).1, "transforms");
    assert_eq!(problem("string", &bytes).1, "data");
    let bytes = CdrWriter::new(false).header(0, 0, "").u32(u32::MAX).finish();
    assert_eq!(problem("pose_array", &bytes).1, "poses");
    assert_eq!(problem("joint_state", &bytes).1, "name");
}

#[test]
fn other_representations_are_refused_by_name() {
    let mut bytes = sample("string");
    bytes[1] = 7; // XCDR2
    let (problem, field) = problem("string", &bytes);
    assert_eq!(field, "encapsulation");
    assert!(problem.contains("0x0007"), "{problem}");
}

#[test]
fn images_whose_sizes_dont_fit_are_refused() {
    assert_eq!(problem("image", &image(false, "rgb8", 3, 2, 8, 20)).1, "step");
    assert_eq!(problem("image", &image(false, "16UC1", 3, 2, 5, 20)).1, "step");
    // Rows without padding are what they are.
    for step in [0, 3, 18, u32::MAX] {
        let image = Image::decode(&image(false, "rgb8", 3, 2, step, 18)).unwrap();
        assert_eq!(image.step, 9, "{step}");
    }
    assert_eq!(problem("image", &image(false, "rgb8", 3, 2, 10, 19)).1, "data");
    assert_eq!(problem("image", &image(false, "rgb8", 0, 2, 10, 20)).1, "width");
    assert_eq!(problem("image", &image(false, "rgb8", 3, u32::MAX, u32::MAX, 20)).1, "data");
    let unknown = Image::decode(&image(false, "yuv422", 3, 2, 2, 20)).unwrap();
    assert_eq!((unknown.bytes_per_pixel(), unknown.row(0)), (None, None));
}

#[test]
fn sizes_of_encodings() {
    let known = [("mono8", 1), ("16UC1", 2), ("32FC1", 4), ("8UC3", 3), ("bayer_rggb16", 2)];
    for (encoding, expected) in known {
        let image = Image::decode(&image(false, encoding, 1, 1, 20, 20)).unwrap();
        assert_eq!(image.bytes_per_pixel(), Some(expected), "{encoding}");
    }
    for encoding in ["", "U", "16", "9UC1", "16UC9", "16UÄ", "bayer_", "C1"] {
        let image = Image::decode(&image(false, encoding, 1, 1, 20, 20)).unwrap();
        assert_eq!(image.bytes_per_pixel(), None, "{encoding}");
    }
}

#[test]
fn cameras_that_cannot_be_used_are_refused() {
    assert_eq!(problem("camera_info", &camera_info(false, 0.0, [0; 6])).1, "k");
    assert_eq!(problem("camera_info", &camera_info(false, f64::NAN, [0; 6])).1, "k");
    assert_eq!(
        problem("camera_info", &camera_info(false, 600.0, [641, 1, 0, 0, 0, 0])).1,
        "binning_x"
    );
    for roi in [[1, 0, 480, 640], [0, 1, 480, 640], [0, 0, 481, 640], [0, 0, 0, 640], [5, 5, 0, 0]]
    {
        let [x, y, height, width] = roi;
        let bytes = camera_info(false, 600.0, [1, 1, x, y, height, width]);
        assert_eq!(problem("camera_info", &bytes).1, "roi", "{roi:?}");
    }
    let huge = camera_info(false, 600.0, [1, 1, u32::MAX, 0, 480, 640]);
    assert_eq!(problem("camera_info", &huge).1, "roi");
    let mut sizeless = camera_info(false, 600.0, [0; 6]);
    let height = sizeless.windows(4).position(|bytes| bytes == 480u32.to_le_bytes()).unwrap();
    sizeless[height..height + 4].fill(0);
    let (text, field) = problem("camera_info", &sizeless);
    assert!(field == "width" && text.contains("640 x 0"), "{text}");
}

#[test]
fn calibrations_are_of_the_published_image() {
    let decode = |rest| CameraInfo::decode(&camera_info(false, 600.0, rest)).unwrap();
    let whole = decode([0; 6]);
    for rest in [[1, 1, 0, 0, 0, 0], [0, 1, 0, 0, 480, 640]] {
        assert_eq!(decode(rest), whole);
    }
    let cut = decode([0, 0, 100, 30, 200, 301]);
    assert_eq!((cut.width, cut.height), (301, 200));
    assert_eq!(cut.k, [600.0, 0.0, 220.0, 0.0, 600.0, 210.0, 0.0, 0.0, 1.0]);
    assert_eq!((cut.p[2], cut.p[6]), (-100.0, -30.0));
    let binned = decode([2, 4, 100, 30, 200, 301]);
    assert_eq!((binned.width, binned.height), (150, 50));
    assert_eq!(binned.k, [300.0, 0.0, 110.0, 0.0, 150.0, 52.5, 0.0, 0.0, 1.0]);
    // A point is seen at the same place of the sensor.
    let at = |info: &CameraInfo| {
        let undistorted = CameraInfo { d: Vec::new(), ..info.clone() };
        crate::vision::camera::Camera::new(&undistorted).unwrap().project([0.1, -0.2, 1.3]).unwrap()
    };
    let ([u, v], [u_cut, v_cut]) = (at(&whole), at(&binned));
    assert!((u - (2.0 * u_cut + 100.0)).abs() < 1e-9 && (v - (4.0 * v_cut + 30.0)).abs() < 1e-9);
}

#[test]
fn joints_and_plans_that_cannot_be_used_are_refused() {
    let state = |positions: &[f64]| {
        let writer = CdrWriter::new(false).header(0, 0, "").strings(&["a", "b"]);
        writer.f64s(positions).f64s(&[]).f64s(&[]).finish()
    };
    assert!(decode("joint_state", &state(&[])).is_ok());
    assert_eq!(problem("joint_state", &state(&[1.0])).1, "position");
    // Whether anybody needs what is no number is for others to say.
    assert!(decode("joint_state", &state(&[1.0, f64::INFINITY])).is_ok());
    let odd = CdrWriter::new(false).header(0, 0, "").strings(&["a", "b"]).f64s(&[1.0, 2.0]);
    let odd = JointState::decode(&odd.f64s(&[1.0]).f64s(&[1.0; 3]).finish()).unwrap();
    assert!(odd.velocities.is_empty() && odd.efforts.is_empty() && odd.positions == [1.0, 2.0]);
    for times in [&[1, 1][..], &[2, 1]] {
        let field = problem("joint_trajectory", &trajectory(false, times)).1;
        assert_eq!(field, "points[].time_from_start");
    }
}

#[test]
fn poses_that_are_none_are_refused() {
    let at = |x: f64| [x, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0];
    for pose in [[0.0; 7], at(f64::NAN), [f64::INFINITY; 7], at(1e30), at(-1.1e8)] {
        let bytes = start_of_tf(false).string("camera").f64_array(&pose).finish();
        assert_eq!(problem("tf", &bytes).1, "transforms[].transform");
    }
    // Europe in the frame `earth` of REP 105.
    let bytes = start_of_tf(false).string("camera").f64_array(&at(4.2e6)).finish();
    assert!(decode("tf", &bytes).is_ok());
}

#[test]
fn a_prediction_whose_lengths_dont_fit_is_refused() {
    assert_eq!(problem("prediction", &prediction(false, 3)).1, "displacements");
    assert_eq!(problem("prediction", &prediction(false, u32::MAX)).1, "displacements");
}

#[test]
fn text_must_be_utf8_and_end_in_zero() {
    let mut bytes = sample("string");
    let last = bytes.len() - 1;
    bytes[last] = b'x';
    assert!(problem("string", &bytes).0.contains("0x78"));
    bytes[last] = 0;
    bytes[last - 1] = 0xFF;
    assert!(problem("string", &bytes).0.contains("utf-8"));
}

#[test]
fn stamps_keep_their_nanoseconds() {
    let stamp = Stamp::from_parts(-2, 999_999_999);
    assert_eq!(stamp.nanos(), -1_000_000_001);
    assert_eq!(stamp.parts(), (-2, 999_999_999));
    assert_eq!(stamp.to_string(), "-1.000000001");
    assert_eq!(stamp.plus_secs(0.1).secs_since(stamp), 0.1);
    assert_eq!(Stamp::from_nanos(i64::MAX).plus_secs(1e300).nanos(), i64::MAX);
    assert_eq!(Stamp::from_nanos(i64::MIN).abs_diff(Stamp::from_nanos(i64::MAX)), u64::MAX);
}
