//! One scene as images, as compressed images, as clouds and as depth that is not registered.

use super::*;
use crate::message::encode::CdrWriter;
use crate::vision::camera::{Camera, ColorImage, DepthImage};
use crate::vision::cloud::{Cloud, GREY, Workspace};
use crate::vision::particles::Particles;
use forecloud_bag::bag::Bag;

/// The scene's messages, each put through `convert`: topic and bytes.
fn converted(
    convert: impl Fn(&CameraTopics, &str, &[u8]) -> Option<(String, Vec<u8>)>,
) -> Vec<(String, Vec<u8>)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tiny_push");
    let bag = Bag::open(path).expect("part of the repository");
    let cameras = Topics::default().cameras;
    let mut messages = Vec::new();
    for message in bag.messages_where(|topic| !topic.starts_with("/truth")) {
        let message = message.expect("readable");
        let of = |camera: &&CameraTopics| message.topic.starts_with(&format!("/{}/", camera.name));
        match cameras.iter().find(of) {
            Some(camera) => messages.extend(convert(camera, &message.topic, &message.data)),
            None => messages.push((message.topic.to_string(), message.data.to_vec())),
        }
    }
    messages
}

/// The scene as it is.
fn as_images() -> Vec<(String, Vec<u8>)> {
    converted(|_, topic, data| Some((topic.to_owned(), data.to_vec())))
}

fn config(input: CameraInput, depth_registered: bool) -> FramesConfig {
    let mut config = FramesConfig::default();
    for camera in &mut config.topics.cameras {
        *camera = CameraTopics::new(&camera.name, input, depth_registered);
    }
    config
}

/// All frames of `messages`, none lost; `transforms` are added at the start.
fn played(
    config: FramesConfig,
    transforms: TfMessage,
    messages: &[(String, Vec<u8>)],
) -> Vec<Frame> {
    let mut frames = Frames::new(config);
    push(&mut frames, Input::TfStatic(transforms));
    let mut made: Vec<Frame> =
        messages.iter().filter_map(|(topic, data)| frames.push_raw(topic, data)).collect();
    made.extend(std::iter::from_fn(|| frames.finish()));
    let expected = FrameCounts { frames: 6, ..FrameCounts::default() };
    assert_eq!(*frames.counts(), expected, "{:?}", frames.last_problem());
    made
}

fn cloud(frame: &Frame) -> Cloud {
    let mut cloud = Cloud::default();
    let counts = cloud.from_cameras(&frame.cameras, &Workspace::default()).expect("a cloud");
    assert!(counts.n_kept > 1000, "{counts:?}");
    cloud
}

fn particles(cloud: &Cloud, stamp: Stamp) -> Particles {
    let mut particles = Particles::default();
    particles.sample(cloud, 500, 1, stamp.nanos(), &Workspace::default());
    particles
}

/// Both give the same particles: of the same pixels and colours, within 1e-5 m.
fn assert_same_particles(expected: &[Frame], got: &[Frame]) {
    assert_eq!(expected.len(), got.len());
    for (a, b) in expected.iter().zip(got) {
        assert_eq!(a.stamp, b.stamp);
        let (a, b) = (particles(&cloud(a), a.stamp), particles(&cloud(b), b.stamp));
        assert_eq!((a.len(), b.len()), (500, 500));
        assert!(a.colors == b.colors && a.sources == b.sources);
        for (a, b) in a.positions.iter().zip(&b.positions) {
            assert!((0..3).all(|i| (a[i] - b[i]).abs() < 1e-5), "{a:?}, not {b:?}");
        }
    }
}

fn with_header(header: &Header) -> CdrWriter {
    let (sec, nanosec) = header.stamp.parts();
    CdrWriter::new(false).header(sec, nanosec, &header.frame_id)
}

fn png(image: &Image, color: png::ColorType, depth: png::BitDepth) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, image.width, image.height);
    encoder.set_color(color);
    encoder.set_depth(depth);
    let mut data = image.data.clone();
    if depth == png::BitDepth::Sixteen {
        data.chunks_exact_mut(2).for_each(|pixel| pixel.swap(0, 1)); // PNG is big endian
    }
    encoder.write_header().unwrap().write_image_data(&data).unwrap();
    bytes
}

#[test]
fn compressed_images_give_the_same_particles() {
    let messages = converted(|_, topic, data| {
        if topic.ends_with("camera_info") {
            return Some((topic.to_owned(), data.to_vec()));
        }
        let image = Image::decode(data).unwrap();
        let is_depth = image.encoding == "16UC1";
        let (name, format, compressed) = if is_depth {
            let png = png(&image, png::ColorType::Grayscale, png::BitDepth::Sixteen);
            // The transport's own header: what it is, and two numbers for 32FC1.
            ("compressedDepth", "16UC1; compressedDepth png", [vec![0; 12], png].concat())
        } else {
            let png = png(&image, png::ColorType::Rgb, png::BitDepth::Eight);
            ("compressed", "rgb8; png compressed bgr8", png)
        };
        let message = with_header(&image.header).string(format).u8s(&compressed);
        Some((format!("{topic}/{name}"), message.finish()))
    });
    let expected = played(FramesConfig::default(), TfMessage::default(), &as_images());
    let got = played(config(CameraInput::Compressed, true), TfMessage::default(), &messages);
    assert_same_particles(&expected, &got);
    assert!(cloud(&expected[0]) == cloud(&got[0]), "lossless to the bit");
}

/// The scene's messages with colour or depth compressed, depth as a bare PNG where it `is_bare`.
fn compressed(colors: bool, depths: bool, is_bare: bool) -> Vec<(String, Vec<u8>)> {
    converted(|_, topic, data| {
        let is_depth = topic.contains("/depth/");
        let is_changed = if is_depth { depths } else { colors };
        if !topic.ends_with("image_raw") || !is_changed {
            return Some((topic.to_owned(), data.to_vec()));
        }
        let image = Image::decode(data).unwrap();
        let (name, format, data) = match is_depth {
            true => {
                let png = png(&image, png::ColorType::Grayscale, png::BitDepth::Sixteen);
                match is_bare {
                    true => ("compressedDepth", "16UC1; png compressed ", png),
                    false => (
                        "compressedDepth",
                        "16UC1; compressedDepth png",
                        [vec![0; 12], png].concat(),
                    ),
                }
            }
            false => {
                let png = png(&image, png::ColorType::Rgb, png::BitDepth::Eight);
                ("compressed", "rgb8; png compressed bgr8", png)
            }
        };
        let message = with_header(&image.header).string(format).u8s(&data);
        Some((format!("{topic}/{name}"), message.finish()))
    })
}

#[test]
fn colour_or_depth_alone_may_be_compressed() {
    let expected = played(FramesConfig::default(), TfMessage::default(), &as_images());
    for (input, [colors, depths, is_bare]) in [
        (CameraInput::ColorCompressed, [true, false, false]),
        (CameraInput::DepthCompressed, [false, true, false]),
        (CameraInput::Compressed, [true, true, true]),
    ] {
        let messages = compressed(colors, depths, is_bare);
        let got = played(config(input, true), TfMessage::default(), &messages);
        assert!(cloud(&expected[0]) == cloud(&got[0]), "{input:?}");
    }
}

#[test]
fn depth_without_colour_is_grey() {
    let expected = played(FramesConfig::default(), TfMessage::default(), &as_images());
    for (input, is_compressed) in
        [(CameraInput::DepthOnly, false), (CameraInput::CompressedDepthOnly, true)]
    {
        let messages = compressed(false, is_compressed, false).into_iter();
        let messages = messages.filter(|(topic, _)| !topic.contains("/color/image"));
        let renamed =
            messages.map(|(topic, data)| (topic.replace("/color/camera", "/depth/camera"), data));
        let renamed: Vec<_> = renamed.collect();
        let got = played(config(input, true), TfMessage::default(), &renamed);
        let (expected, got) = (cloud(&expected[0]), cloud(&got[0]));
        assert!(expected.positions == got.positions, "{input:?}");
        assert!(got.colors.iter().all(|color| *color == GREY), "{input:?}");
    }
}

/// `sensor_msgs/msg/PointCloud2` of x, y, z and rgb, 16 bytes a point; NaN where nothing is.
fn cloud_message(
    header: &Header,
    size: [u32; 2],
    points: &[Option<([f32; 3], [u8; 3])>],
) -> Vec<u8> {
    let mut data = Vec::new();
    for point in points {
        let (position, [r, g, b]) = point.unwrap_or(([f32::NAN; 3], [0; 3]));
        position.iter().for_each(|x| data.extend(x.to_le_bytes()));
        data.extend([b, g, r, 0]);
    }
    let mut message = with_header(header).u32(size[1]).u32(size[0]).u32(4);
    for (name, offset) in ["x", "y", "z", "rgb"].into_iter().zip((0..).step_by(4)) {
        message = message.string(name).u32(offset).u8(7).u32(1);
    }
    let message = message.u8(0).u32(16).u32(16 * size[0]).u8s(&data);
    message.u8(0).finish()
}

/// A cloud for each colour and depth image of `frames`, by camera and stamp, in the frame that
/// `from_camera` leads to.
fn clouds(frames: &[Frame], frame_id: &str, to_world: bool) -> HashMap<(String, Stamp), Vec<u8>> {
    let cameras = Topics::default().cameras;
    let mut clouds = HashMap::new();
    for view in frames.iter().flat_map(|frame| &frame.cameras) {
        let View::Depth { depth, info, color: Some(color) } = &view.view else { unreachable!() };
        let (optics, rows) = (Camera::new(info).unwrap(), DepthImage::new(depth).unwrap());
        let colors = ColorImage::new(&color.image).unwrap();
        let mut points = Vec::new();
        for v in 0..depth.height {
            for (u, (z, rgb)) in (0u32..).zip(rows.row(v).zip(colors.row(v))) {
                let ray = optics.ray([u.into(), v.into()]);
                let local = nalgebra::Point3::from(ray.map(|x| x * f64::from(z)));
                let point = if to_world { view.world_from_camera * local } else { local };
                points.push((!z.is_nan()).then(|| (point.coords.cast::<f32>().into(), rgb)));
            }
        }
        let mut header = depth.header.clone();
        if to_world {
            header.frame_id = frame_id.to_owned();
        }
        let message = cloud_message(&header, [depth.width, depth.height], &points);
        clouds.insert((cameras[view.camera].name.clone(), header.stamp), message);
    }
    clouds
}

#[test]
fn clouds_give_the_same_particles_in_the_cameras_frame_and_in_the_world() {
    let expected = played(FramesConfig::default(), TfMessage::default(), &as_images());
    for to_world in [false, true] {
        let clouds = clouds(&expected, "world", to_world);
        let messages = converted(|camera, topic, data| {
            // In the place of each depth image; neither colour nor calibration is there.
            let stamp =
                (topic == camera.depth).then(|| Image::decode(data).unwrap().header.stamp)?;
            Some((
                format!("/{}/points", camera.name),
                clouds[&(camera.name.clone(), stamp)].clone(),
            ))
        });
        let got = played(config(CameraInput::Points, true), TfMessage::default(), &messages);
        assert_same_particles(&expected, &got);
    }
}

/// Where the depth camera is beside the colour camera, metres: right of it, as in an RGB-D camera.
const BASELINE_M: f64 = 0.015;

/// The depth image as a camera sees it that is `BASELINE_M` to the right, by moving each pixel:
/// nearer ones hide others, and what the colour camera does not see is not measured.
fn seen_from_beside(depth: &Image, info: &CameraInfo) -> Image {
    let rows = DepthImage::new(depth).unwrap();
    let mut moved = vec![0u16; (depth.width * depth.height) as usize];
    for v in 0..depth.height {
        for (u, z) in rows.row(v).enumerate().filter(|(_, z)| !z.is_nan()) {
            let column = u as f64 - info.k[0] * BASELINE_M / f64::from(z);
            if column.round() >= 0.0 {
                let pixel = &mut moved[v as usize * depth.width as usize + column.round() as usize];
                let mm = (z * 1e3).round() as u16;
                *pixel = if *pixel == 0 { mm } else { mm.min(*pixel) };
            }
        }
    }
    let mut image = depth.clone();
    image.header.frame_id += "_depth";
    image.step = 2 * image.width;
    image.data = moved.iter().flat_map(|mm| mm.to_le_bytes()).collect();
    image
}

fn image_message(image: &Image) -> Vec<u8> {
    let message = with_header(&image.header).u32(image.height).u32(image.width);
    message.string(&image.encoding).u8(0).u32(image.step).u8s(&image.data).finish()
}

#[test]
fn depth_of_a_camera_beside_lies_on_the_same_surfaces_in_the_same_colours() {
    let expected = played(FramesConfig::default(), TfMessage::default(), &as_images());
    let infos: Vec<_> = expected[0]
        .cameras
        .iter()
        .map(|view| match &view.view {
            View::Depth { info, .. } => info.clone(),
            View::Points(_) => unreachable!(),
        })
        .collect();
    let messages: Vec<_> = as_images()
        .into_iter()
        .flat_map(|(topic, data)| {
            let camera = usize::from(topic.contains("right"));
            if topic.ends_with("depth/image_raw") {
                let depth = seen_from_beside(&Image::decode(&data).unwrap(), &infos[camera]);
                return vec![(topic, image_message(&depth))];
            }
            // The same numbers on both topics; the frame is that of the depth images.
            let depth_info = topic
                .ends_with("color/camera_info")
                .then(|| (topic.replace("color", "depth"), data.clone()));
            [(topic, data)].into_iter().chain(depth_info).collect()
        })
        .collect();
    let transforms = infos.iter().map(|info| TransformStamped {
        header: info.header.clone(),
        child_frame_id: info.header.frame_id.clone() + "_depth",
        parent_from_child: Isometry3::translation(BASELINE_M, 0.0, 0.0),
    });
    let transforms = TfMessage { transforms: transforms.collect() };
    let got = played(config(CameraInput::Images, false), transforms, &messages);
    for (a, b) in expected.iter().zip(&got) {
        assert_beside(a, b, &infos);
    }
}

/// Each coloured point of `got` is that of a pixel of `expected`, moved by less than a pixel.
fn assert_beside(expected: &Frame, got: &Frame, infos: &[Arc<CameraInfo>]) {
    let (registered, beside) = (cloud(expected), cloud(got));
    let known: HashMap<u32, usize> = registered.sources.iter().copied().zip(0..).collect();
    let (mut n_grey, mut n_near, mut n_alike) = (0, 0, 0);
    for (i, source) in beside.sources.iter().enumerate() {
        if beside.colors[i] == GREY {
            n_grey += 1;
            continue;
        }
        let camera = (source >> 24) as usize;
        let position = nalgebra::Point3::from(beside.positions[i].map(f64::from));
        let local = expected.cameras[camera].world_from_camera.inverse() * position;
        let optics = Camera::new(&infos[camera]).unwrap();
        let [u, v] = optics.project(local.coords.into()).unwrap().map(|x| x.round() as u32);
        let pixel = (source & 0xff00_0000) | (v * infos[camera].width + u);
        let Some(&there) = known.get(&pixel) else { continue };
        let gap: f32 = (0..3)
            .map(|axis| (registered.positions[there][axis] - beside.positions[i][axis]).powi(2))
            .sum();
        // Half a pixel of quantisation on the way there, half on the way back; slanted surfaces
        // stretch it.
        let pixel_m = local.z / infos[camera].k[0];
        n_near += usize::from(f64::from(gap.sqrt()) < 2.0 * pixel_m);
        n_alike += usize::from(registered.colors[there] == beside.colors[i]);
    }
    let n = beside.len();
    println!("{n} points of {}, {n_grey} grey, {n_near} near, {n_alike} alike", registered.len());
    assert!(n * 10 > registered.len() * 9, "{n} points of {}", registered.len());
    assert!(n_grey * 50 < n && n_alike * 50 > (n - n_grey) * 49, "{n_grey} grey, {n_alike} alike");
    assert!(n_near * 20 > n * 19, "{n_near} of {n} near");
}
