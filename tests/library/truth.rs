//! Clouds against the simulator's truth: points that the true poses of their bodies move land on
//! the next depth image.

use forecloud::message::{Image, PoseArray, Stamp};
use forecloud::vision::camera::{Camera, DepthImage};
use forecloud::vision::cloud::{Cloud, Workspace};
use forecloud::vision::frames::{CameraFrame, Frame, Frames, FramesConfig, View};
use forecloud_bag::bag::Bag;
use nalgebra::{Isometry3, Point3};
use std::collections::HashMap;

const CAMERAS: [&str; 2] = ["camera_left", "camera_right"];

/// Frames of a recording with the bodies that each pixel shows and where the bodies are.
#[derive(Default)]
struct Truth {
    frames: Vec<Frame>,
    body_ids: HashMap<(usize, Stamp), Image>,
    world_from_body: HashMap<Stamp, Vec<Isometry3<f64>>>,
}

fn read(path: &str) -> Truth {
    let bag = Bag::open(path).unwrap();
    let mut frames = Frames::new(FramesConfig::default());
    let mut truth = Truth::default();
    for message in bag.messages() {
        let message = message.unwrap();
        if &*message.topic == "/truth/body_poses" {
            let poses = PoseArray::decode(&message.data).unwrap();
            truth.world_from_body.insert(poses.header.stamp, poses.poses);
        }
        for (i, camera) in CAMERAS.iter().enumerate() {
            if &*message.topic == format!("/truth/{camera}/body_ids").as_str() {
                let image = Image::decode(&message.data).unwrap();
                truth.body_ids.insert((i, image.header.stamp), image);
            }
        }
        truth.frames.extend(frames.push_raw(&message.topic, &message.data));
    }
    truth.frames.extend(frames.finish());
    truth
}

fn id(image: &Image, pixel: usize) -> usize {
    usize::from(u16::from_le_bytes([image.data[2 * pixel], image.data[2 * pixel + 1]]))
}

/// Depth error (m) at the nearest pixel of the next image, if that shows the same body.
fn depth_error(camera: &CameraFrame, ids: &Image, body: usize, world: Point3<f64>) -> Option<f64> {
    let local = camera.world_from_camera.inverse() * world;
    let View::Depth { depth, info, .. } = &camera.view else { panic!("a depth image") };
    let pixel = Camera::new(info).unwrap().project(local.coords.into())?;
    let [u, v] = pixel.map(f64::round);
    let depth = DepthImage::new(depth).unwrap();
    let [width, height] = depth.size().map(f64::from);
    if u < 0.0 || v < 0.0 || u >= width || v >= height || id(ids, (v * width + u) as usize) != body
    {
        return None;
    }
    let seen = f64::from(depth.row(v as u32).nth(u as usize)?);
    (!seen.is_nan()).then_some((seen - local.z).abs())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn moved_points_land_on_the_next_image() {
    let truth = read(&format!("{}/tests/data/tiny_push", crate::ROOT));
    assert_eq!(truth.frames.len(), 6);
    let (mut moved, mut unmoved, mut n_points) = (Vec::new(), Vec::new(), 0);
    let mut cloud = Cloud::default();
    for pair in truth.frames.windows(2) {
        let [before, after] =
            [&truth.world_from_body[&pair[0].stamp], &truth.world_from_body[&pair[1].stamp]];
        cloud.from_cameras(&pair[0].cameras, &Workspace::default()).unwrap();
        for (position, &source) in cloud.positions.iter().zip(&cloud.sources) {
            let (camera, pixel) = ((source >> 24) as usize, (source & 0xff_ffff) as usize);
            let body = id(&truth.body_ids[&(camera, pair[0].stamp)], pixel);
            let here = Point3::from(position.map(f64::from));
            let there = after[body] * before[body].inverse() * here;
            if (there - here).norm() < 0.01 {
                continue;
            }
            n_points += 1;
            let (next, ids) = (&pair[1].cameras[camera], &truth.body_ids[&(camera, pair[1].stamp)]);
            moved.extend(depth_error(next, ids, body, there));
            unmoved.extend(depth_error(next, ids, body, here));
        }
    }
    let landed = moved.len() as f64 / f64::from(n_points);
    let (moved, unmoved) = (median(&mut moved), median(&mut unmoved));
    println!("{n_points} points, {landed} landed, {moved} m off, {unmoved} m without motion");
    assert!(n_points > 500, "{n_points} points move");
    assert!(landed > 0.8, "{landed} of the points land on their body");
    assert!(moved < 2e-3 && moved < 0.5 * unmoved, "{moved} m off, {unmoved} m without motion");
}
