//! Images and calibrations that change while they come.

use super::intake::Intake;
use super::stream::{self, COLOR, DEPTH, HEIGHT, INFO, Message, WIDTH};
use forecloud::predict::predictor::Prediction;

const FULL: [u32; 2] = [WIDTH, HEIGHT];
const HALF: [u32; 2] = [WIDTH / 2, HEIGHT / 2];
const FOCAL_PX: f64 = 24.0;

/// Frame `i`, what `replacement` has a word on exchanged.
fn frame_with(
    i: u64,
    replacement: impl Fn(&'static str, i64) -> Option<Message>,
) -> impl Iterator<Item = Message> {
    let replaced = move |m: Message| replacement(m.topic, stream::stamp(i)).unwrap_or(m);
    stream::frame(i).into_iter().map(replaced)
}

/// Largest distance from the optical axis along x, in metres.
fn half_width(prediction: &Prediction) -> f32 {
    prediction.particles.positions.iter().fold(0.0, |widest, p| widest.max(p[0].abs()))
}

#[test]
fn a_camera_may_change_its_size_with_its_calibration() {
    let mut intake = Intake::after(5);
    for i in 5..15 {
        // One camera at half the resolution, then at the full one again.
        let size = if i < 10 { HALF } else { FULL };
        let focal_px = FOCAL_PX * f64::from(size[0]) / f64::from(WIDTH);
        let messages = frame_with(i, |topic, at| match topic {
            _ if topic == COLOR[0] => Some(stream::color_image(0, size, at)),
            _ if topic == DEPTH[0] => Some(stream::depth_image(0, size, at)),
            _ if topic == INFO[0] => Some(stream::camera_info(0, size, focal_px, at)),
            _ => None,
        });
        assert!(intake.take_all(messages).is_some(), "{:?}", intake.problems);
    }
    assert_eq!(intake.counts().n_dropped(), 0);
}

#[test]
fn sizes_that_do_not_fit_are_dropped_and_named() {
    for changed in [COLOR[0], DEPTH[0], INFO[0]] {
        let mut intake = Intake::after(5);
        for i in 5..10 {
            intake.take_all(frame_with(i, |topic, at| match topic {
                _ if topic != changed => None,
                _ if topic == COLOR[0] => Some(stream::color_image(0, HALF, at)),
                _ if topic == DEPTH[0] => Some(stream::depth_image(0, HALF, at)),
                _ => Some(stream::camera_info(0, HALF, FOCAL_PX, at)),
            }));
        }
        assert_eq!(intake.n_predicted, 4, "{changed}");
        let lost = intake.counts().dropped_mismatched + intake.n_rejected;
        assert_eq!(lost, 5, "{changed}: {:?}", intake.counts());
        assert!(intake.reported(&["16 x 12", "32 x 24"]), "{changed}: {:?}", intake.problems);
        assert!(intake.take_frames(10..15) >= 4);
    }
}

#[test]
fn an_image_without_pixels_or_with_too_few_bytes_is_counted() {
    let mut intake = Intake::after(5);
    for (size, data) in [([0, 0], &[][..]), ([4, 0], &[]), ([u32::MAX, u32::MAX], &[1, 2, 3])] {
        intake.take(&stream::image(DEPTH[0], "16UC1", [size[0], size[1]], 0, data, 0));
        intake.take(&stream::image(DEPTH[0], "16UC1", [size[0], size[1]], 2, data, 0));
    }
    assert_eq!(intake.counts().bad_messages, 6);
    assert!(intake.reported(&[DEPTH[0], "sensor_msgs/msg/Image"]), "{:?}", intake.problems);
    assert_eq!(intake.take_frames(5..10), 5);
}

#[test]
fn a_depth_encoding_may_change_to_another_that_is_read() {
    let metres = |at: i64| {
        let millimetres = stream::depth_image(0, FULL, at);
        let data = millimetres.bytes[millimetres.bytes.len() - (2 * WIDTH * HEIGHT) as usize..]
            .chunks_exact(2)
            .map(|pair| 1e-3 * f32::from(u16::from_le_bytes([pair[0], pair[1]])))
            .flat_map(f32::to_le_bytes);
        stream::image(DEPTH[0], "32FC1", FULL, 4, &data.collect::<Vec<u8>>(), at)
    };
    let (mut intake, mut expected) = (Intake::after(5), Intake::after(5));
    for i in 5..8 {
        let changed = frame_with(i, |topic, at| (topic == DEPTH[0]).then(|| metres(at)));
        let got = intake.take_all(changed).expect("a prediction");
        let expected = expected.take_all(stream::frame(i)).expect("a prediction");
        assert_eq!(got.particles.positions, expected.particles.positions);
    }
    assert_eq!(intake.counts().n_dropped(), 0);
}

#[test]
fn an_encoding_that_is_not_read_is_rejected_and_named() {
    for (topic, encoding, bytes_per_pixel) in
        [(COLOR[0], "bayer_rggb8", 1), (DEPTH[1], "64FC1", 8), (DEPTH[1], "nonsense", 2)]
    {
        let mut intake = Intake::after(5);
        for i in 5..10 {
            let data = vec![1; (WIDTH * HEIGHT * bytes_per_pixel) as usize];
            intake.take_all(frame_with(i, |of, at| {
                let image = || stream::image(of, encoding, FULL, bytes_per_pixel, &data, at);
                (of == topic).then(image)
            }));
        }
        assert_eq!((intake.n_predicted, intake.n_rejected), (4, 5), "{encoding}");
        assert!(intake.reported(&[encoding, "use "]), "{:?}", intake.problems);
        assert!(intake.take_frames(10..15) >= 4);
    }
}

#[test]
fn a_calibration_that_changes_counts_from_then_on() {
    let mut intake = Intake::after(5);
    let before = intake.take_all(stream::frame(5)).expect("a prediction");
    let zoomed = |i| {
        frame_with(i, |topic, at| {
            let camera = INFO.iter().position(|info| *info == topic)?;
            Some(stream::camera_info(camera, FULL, 2.0 * FOCAL_PX, at))
        })
    };
    let after = intake.take_all(zoomed(6)).expect("a prediction");
    let ratio = half_width(&after) / half_width(&before);
    assert!((0.4..0.6).contains(&ratio), "twice the focal length, half the width: {ratio}");
    assert_eq!(intake.counts().n_dropped(), 0);
}

#[test]
fn a_calibration_that_is_none_is_counted_and_the_last_good_one_kept() {
    let mut intake = Intake::after(5);
    let expected = Intake::after(5).take_all(stream::frame(5)).expect("a prediction");
    let messages = frame_with(5, |topic, at| {
        (topic == INFO[0]).then(|| stream::camera_info(0, FULL, 0.0, at))
    });
    let got = intake.take_all(messages).expect("a prediction");
    assert_eq!(got.particles.positions, expected.particles.positions);
    assert_eq!(intake.counts().bad_messages, 1);
    assert!(intake.reported(&[INFO[0], "calibrate the camera"]), "{:?}", intake.problems);
}
