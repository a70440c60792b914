use crate::base::error::Error;
use crate::message::{CameraInfo, Header, MAX_PIXELS};
use crate::vision::camera::{Camera, RayTable};
use proptest::prelude::*;

/// A calibration as a camera of the kind publishes it, and where OpenCV 5.0 sees [`POINTS`]
/// (`cv2.projectPoints`, `cv2.fisheye.projectPoints`).
struct Sample {
    name: &'static str,
    size: [u32; 2],
    /// fx, fy, cx, cy.
    k: [f64; 4],
    model: &'static str,
    d: &'static [f64],
    opencv: [[f64; 2]; 3],
}

const POINTS: [[f64; 3]; 3] = [[0.3, -0.2, 1.1], [-0.9, 0.55, 1.5], [0.02, 0.41, 0.7]];

const SAMPLES: [Sample; 6] = [
    Sample {
        name: "RealSense D455, colour",
        size: [1280, 720],
        k: [636.2, 635.4, 641.3, 362.7],
        model: "plumb_bob",
        d: &[-0.0558, 0.0665, -0.00054, 0.00028, -0.0214],
        opencv: [
            [813.977187362, 247.70251155],
            [265.260739145, 592.09690874],
            [659.305525027, 729.976936889],
        ],
    },
    Sample {
        name: "wide webcam",
        size: [640, 480],
        k: [460.0, 460.9, 318.4, 243.1],
        model: "plumb_bob",
        d: &[-0.352, 0.149, 0.00051, -0.00032, -0.0301],
        opencv: [
            [439.260189897, 162.383586737],
            [81.104692038, 388.46918053],
            [330.12445818, 485.04219208],
        ],
    },
    Sample {
        name: "global shutter, four coefficients",
        size: [752, 480],
        k: [458.654, 457.296, 367.215, 248.375],
        model: "plumb_bob",
        d: &[-0.28340811, 0.07395907, 0.00019359, 1.76187114e-05],
        opencv: [
            [488.5937433, 167.705514645],
            [125.580137677, 395.649741539],
            [379.162647637, 492.550233427],
        ],
    },
    Sample {
        name: "Azure Kinect, Orbbec Femto Bolt: colour",
        size: [1280, 720],
        k: [605.4, 605.2, 638.1, 367.5],
        model: "rational_polynomial",
        d: &[0.5208, -2.7146, 0.00072, -0.00024, 1.5703, 0.3977, -2.5330, 1.4964],
        opencv: [
            [804.95333747, 256.337601509],
            [262.323029373, 597.237180661],
            [655.82111458, 731.836601609],
        ],
    },
    Sample {
        name: "Azure Kinect, Orbbec Femto Bolt: depth",
        size: [640, 576],
        k: [504.1, 504.2, 320.3, 330.6],
        model: "rational_polynomial",
        d: &[5.44, 3.36, 0.00001, 0.000086, 0.17, 5.77, 5.27, 0.88],
        opencv: [
            [453.019991472, 242.106101077],
            [59.154747522, 490.23601859],
            [333.262310361, 596.076135123],
        ],
    },
    Sample {
        name: "fisheye of 134 degrees",
        size: [848, 800],
        k: [486.1, 486.2, 421.4, 397.9],
        model: "equidistant",
        d: &[-0.0076, 0.0429, -0.0404, 0.0074],
        opencv: [
            [549.461823451, 312.507887867],
            [166.896423963, 553.4619586],
            [433.966312604, 655.562403531],
        ],
    },
];

fn info([fx, fy, cx, cy]: [f64; 4], model: &str, d: &[f64]) -> CameraInfo {
    CameraInfo {
        header: Header { frame_id: "optical".into(), ..Header::default() },
        height: 480,
        width: 640,
        distortion_model: model.into(),
        d: d.to_vec(),
        k: [fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0],
        r: [0.0; 9],
        p: [0.0; 12],
    }
}

fn camera(sample: &Sample) -> Camera {
    Camera::new(&info(sample.k, sample.model, sample.d)).unwrap()
}

fn gap<const N: usize>(a: [f64; N], b: [f64; N]) -> f64 {
    (0..N)
        .map(|i| (a[i] - b[i]).abs())
        .fold(0.0, |largest, gap| if gap <= largest { largest } else { gap })
}

#[test]
fn projections_are_those_of_opencv() {
    for sample in &SAMPLES {
        assert!(!camera(sample).is_pinhole());
        for (point, opencv) in POINTS.into_iter().zip(sample.opencv) {
            let got = camera(sample).project(point).unwrap();
            assert!(gap(got, opencv) < 1e-8, "{}: {got:?}, not {opencv:?}", sample.name);
            assert!(gap(got, plain(sample, point)) < 1e-9, "{}", sample.name);
        }
    }
}

/// The models as written in OpenCV's documentation, term by term.
fn plain(sample: &Sample, [x, y, z]: [f64; 3]) -> [f64; 2] {
    let (a, b) = (x / z, y / z);
    let r = (a * a + b * b).sqrt();
    let d = |i: usize| sample.d.get(i).copied().unwrap_or(0.0);
    let [fx, fy, cx, cy] = sample.k;
    let (u, v) = if sample.model == "equidistant" {
        let theta = r.atan();
        let powers = [3, 5, 7, 9].map(|power| theta.powi(power));
        let theta_d = theta + (0..4).map(|i| d(i) * powers[i]).sum::<f64>();
        if r == 0.0 { (a, b) } else { (theta_d / r * a, theta_d / r * b) }
    } else {
        let above = 1.0 + d(0) * r.powi(2) + d(1) * r.powi(4) + d(4) * r.powi(6);
        let below = 1.0 + d(5) * r.powi(2) + d(6) * r.powi(4) + d(7) * r.powi(6);
        (
            a * above / below + 2.0 * d(2) * a * b + d(3) * (r.powi(2) + 2.0 * a.powi(2)),
            b * above / below + d(2) * (r.powi(2) + 2.0 * b.powi(2)) + 2.0 * d(3) * a * b,
        )
    };
    [fx * u + cx, fy * v + cy]
}

#[test]
fn rays_and_projections_are_inverse_over_the_image() {
    for sample in &SAMPLES {
        let camera = camera(sample);
        let [width, height] = sample.size;
        let (mut pixels, mut rays) = (0.0f64, 0.0f64);
        // The last column and row too.
        for u in (0..width).step_by(13).chain([width - 1]) {
            for v in (0..height).step_by(13).chain([height - 1]) {
                let pixel = [f64::from(u), f64::from(v)];
                let ray = camera.ray(pixel);
                let back = camera.project(ray.map(|x| 0.7 * x)).expect(sample.name);
                assert!(gap(plain(sample, ray), pixel) < 1e-6, "{}", sample.name);
                pixels = pixels.max(gap(back, pixel));
                rays = rays.max(gap(camera.ray(back), ray));
            }
        }
        println!("{}: {pixels:e} pixels, {rays:e} focal lengths", sample.name);
        assert!(pixels < 1e-6, "{}: {pixels} pixels", sample.name);
        assert!(rays < 1e-9, "{}: {rays}", sample.name);
        let center = [sample.k[2], sample.k[3]];
        assert!(gap(camera.ray(center), [0.0, 0.0, 1.0]) < 1e-12);
    }
}

/// `r (1 - 0.35 r²)` grows up to r = 1 / √1.05, falls, and is back in the image at r = 1.6.
#[test]
fn what_folds_back_is_not_seen() {
    let fold = 1.05f64.powf(-0.5);
    let edge = fold * (1.0 - 0.35 * fold * fold);
    let camera =
        Camera::new(&info([500.0, 500.0, 320.0, 240.0], "plumb_bob", &[-0.35, 0.0, 0.0, 0.0, 0.0]));
    let camera = camera.unwrap();
    for angle in [0.0f64, 0.4, 2.0, -2.5] {
        let (sin, cos) = angle.sin_cos();
        for i in 0..3000 {
            let r = 0.01 * f64::from(i);
            let seen = camera.project([r * cos * 2.0, r * sin * 2.0, 2.0]);
            assert_eq!(seen.is_some(), r < fold, "r = {r}");
            let pixel = [320.0 + 500.0 * r * cos, 240.0 + 500.0 * r * sin];
            assert_eq!(camera.ray(pixel)[0].is_nan(), r > edge, "r = {r}");
        }
    }
    for sample in &SAMPLES {
        let camera = self::camera(sample);
        let mut last = 0.0;
        for i in 1..2000 {
            let r = 0.02 * f64::from(i);
            let Some(pixel) = camera.project([0.8 * r, -0.6 * r, 1.0]) else { break };
            let distance = (pixel[0] - sample.k[2]).hypot(pixel[1] - sample.k[3]);
            assert!(distance > last, "{} at r = {r}", sample.name);
            last = distance;
        }
    }
}

#[test]
fn a_denominator_without_end_is_none() {
    // 1 - 0.5 r² is zero at r = √2.
    let d = [0.0, 0.0, 0.0, 0.0, 0.0, -0.5, 0.0, 0.0];
    let camera =
        Camera::new(&info([500.0, 500.0, 320.0, 240.0], "rational_polynomial", &d)).unwrap();
    assert!(camera.project([1.41, 0.0, 1.0]).is_some());
    assert!(camera.project([1.42, 0.0, 1.0]).is_none());
    assert!(camera.project([f64::NAN, 0.0, 1.0]).is_none());
    assert!(camera.project([0.0, 0.0, f64::NAN]).is_none());
    assert!(camera.project([0.1, 0.0, -1.0]).is_none());
    assert!(camera.ray([f64::NAN, 0.0])[0].is_nan());
}

#[test]
fn a_ray_table_holds_the_ray_of_every_pixel() {
    let fold = info([90.0, 91.0, 40.2, 29.7], "plumb_bob", &[-0.5, 0.05, 0.001, 0.0, 0.0]);
    let camera = Camera::new(&fold).unwrap();
    let size = [83, 61];
    let table = RayTable::new(camera, size).unwrap();
    let mut n_without = 0;
    for v in 0..61 {
        assert_eq!(table.row(v).len(), 83);
        for (u, got) in (0..83).zip(table.row(v)) {
            let [x, y, _] = camera.ray([f64::from(u), f64::from(v)]);
            n_without += usize::from(x.is_nan());
            let is_same = |got: f32, expected: f64| got.to_bits() == (expected as f32).to_bits();
            assert!(is_same(got[0], x) && is_same(got[1], y), "{got:?} at {u}, {v}");
        }
    }
    assert!(n_without > 0 && n_without < 83 * 61 / 4, "{n_without}");
    assert_eq!(table.n_without_ray(), n_without);
    assert!(table.row(61).is_empty() && table.row(u32::MAX).is_empty());
    assert!(table.is_of(&camera, size) && !table.is_of(&camera, [61, 83]));
    assert!(!table.is_of(&self::camera(&SAMPLES[0]), size));
    assert!(RayTable::new(camera, [0, 7]).unwrap().row(0).is_empty());
    let too_large = RayTable::new(camera, [4097, 4096]);
    assert!(
        matches!(too_large, Err(Error::Shape { expected, .. }) if expected as u64 == MAX_PIXELS)
    );
}

#[test]
fn other_models_are_refused_with_the_remedy() {
    let new = |model, d: &[f64]| Camera::new(&info([500.0, 500.0, 320.0, 240.0], model, d));
    let eight = [0.5, -2.7, 7e-4, -2e-4, 1.6, 0.4, -2.5, 1.5];
    let with_rest = |rest: &[f64]| [&eight[..], rest].concat();
    let plain = new("rational_polynomial", &eight).unwrap();
    assert_eq!(new("rational_polynomial", &with_rest(&[0.0; 4])).unwrap(), plain);
    assert_eq!(new("rational_polynomial", &with_rest(&[0.0; 6])).unwrap(), plain);
    assert_eq!(new("plumb_bob", &eight).unwrap(), plain);
    for model in ["plumb_bob", "equidistant", "", "of my own"] {
        assert!(new(model, &[0.0; 5]).unwrap().is_pinhole(), "{model}");
        assert!(new(model, &[]).unwrap().is_pinhole(), "{model}");
    }
    for (model, d, expected) in [
        ("rational_polynomial", with_rest(&[0.0, 1e-3, 0.0, 0.0]), "thin prisms"),
        ("rational_polynomial", with_rest(&[0.0, 0.0, 0.0, 0.0, 0.0, 0.1]), "tilt"),
        ("plumb_bob", vec![0.1; 3], "4, 5, 8"),
        ("plumb_bob", vec![0.1; 9], "4, 5, 8"),
        ("equidistant", vec![0.1; 5], "4 coefficients"),
        ("", vec![0.1; 5], "plumb_bob"),
        ("double_sphere", vec![0.1; 2], "double_sphere"),
    ] {
        let text = new(model, &d).unwrap_err().to_string();
        let all = ["optical", "image_proc", expected];
        assert!(all.iter().all(|part| text.contains(part)), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3000,
        failure_persistence: None, // the seed is fixed
        rng_seed: proptest::test_runner::RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    /// Of any calibration, sensible or not: a ray leads back to its pixel, or there is none.
    #[test]
    fn a_ray_is_right_or_none(
        d in prop::collection::vec(-1.0f64..1.0, 8),
        scale in prop::sample::select(vec![1e-3, 0.1, 1.0, 10.0, 1e6, 1e200]),
        n in prop::sample::select(vec![4usize, 5, 8]),
        is_fisheye: bool,
        pixel in [-100.0f64..740.0, -100.0f64..580.0],
        direction in [-3.0f64..3.0, -3.0f64..3.0],
    ) {
        let d: Vec<f64> = d[..if is_fisheye { 4 } else { n }].iter().map(|d| d * scale).collect();
        let model = if is_fisheye { "fisheye" } else { "plumb_bob" };
        let camera = Camera::new(&info([300.0, 301.0, 320.0, 240.0], model, &d)).unwrap();
        let seen = camera.project([direction[0], direction[1], 1.0]);
        for pixel in [Some(pixel), seen].into_iter().flatten() {
            let ray = camera.ray(pixel);
            if !ray[0].is_nan() {
                let back = camera.project(ray).expect("a ray is in the range of the model");
                prop_assert!(gap(back, pixel) < 1e-6, "{back:?}, not {pixel:?}");
            }
        }
    }
}
