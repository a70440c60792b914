//! When links and bodies really touch.

use std::collections::{BTreeMap, HashMap};

use forecloud::predict::robot_forecast::LinksAhead;
use forecloud::vision::particles::Particles;
use forecloud_bag::recording::{BodyIds, BodyKind, Truth};
use nalgebra::{Isometry3, Point3};

use super::{APART_M, TOUCH_M};

/// Side of the voxels that have one point of a body (m).
const VOXEL_M: f64 = 0.005;
/// Points of a body that are fewer are none: edges of images (points).
const MIN_POINTS: usize = 20;
/// Distances that are told of (m).
const NEAR_M: f32 = 0.1;

/// Robot and bodies at one time.
pub struct Moment {
    pub secs: f64,
    pub links: LinksAhead,
    pub poses: Vec<Isometry3<f64>>,
}

/// A link, a body, and when their contact begins (s).
pub type Begun = (String, String, f64);

/// When contacts begin, and how near links come to bodies.
#[derive(Default)]
pub struct Touches {
    pub begun: Vec<Begun>,
    /// Time, link, and its distance from the nearest body that is near to it (s, m).
    near: Vec<(f64, String, f32)>,
}

impl Touches {
    /// The least distance of `link` between two times (s), of what is near.
    pub fn least_m(&self, link: &str, from: f64, to: f64) -> f32 {
        let within = |(at, of, _): &&(f64, String, f32)| of == link && (from..=to).contains(at);
        self.near.iter().filter(within).map(|(_, _, m)| *m).fold(f32::INFINITY, f32::min)
    }
}

/// A recording's bodies, and where all was.
pub struct Scene {
    names: Vec<Option<String>>,
    points: BTreeMap<u16, HashMap<[i64; 3], Point3<f64>>>,
    moments: Vec<Moment>,
}

impl Scene {
    pub fn new(truth: &Truth) -> Self {
        let name = |body: &forecloud_bag::recording::Body| {
            (body.kind != BodyKind::Robot).then(|| body.name.clone())
        };
        let names = truth.bodies.iter().map(name).collect();
        Self { names, points: BTreeMap::new(), moments: Vec::new() }
    }

    /// Adds what was seen of the bodies at one time.
    pub fn add(&mut self, moment: Moment, particles: &Particles, ids: &BodyIds) {
        for (p, &source) in particles.positions.iter().zip(&particles.sources) {
            let id = ids.id(source);
            let Some(Some(_)) = self.names.get(usize::from(id)) else { continue };
            let Some(pose) = moment.poses.get(usize::from(id)) else { continue };
            let p = pose.inverse_transform_point(&Point3::from(p.map(f64::from)));
            let voxel = <[f64; 3]>::from(p.coords).map(|x| (x / VOXEL_M).floor() as i64);
            self.points.entry(id).or_default().entry(voxel).or_insert(p);
        }
        self.moments.push(moment);
    }

    /// All contacts, by link.
    pub fn touches(&self) -> Touches {
        let mut touches = Touches::default();
        // Whether each pair was apart when it was seen last.
        let mut apart: HashMap<(usize, u16), bool> = HashMap::new();
        for moment in &self.moments {
            let Some(robot) = moment.links.robot.as_ref() else { continue };
            let Some(poses) = moment.links.rows().next() else { continue };
            let names: Vec<&str> = robot.names_of_links().collect();
            for (&id, points) in self.points.iter().filter(|(_, points)| points.len() >= MIN_POINTS)
            {
                for (link, name) in names.iter().enumerate() {
                    let link_from_body =
                        poses[link].inverse().cast::<f64>() * moment.poses[usize::from(id)];
                    let bounds = robot.bounds_of_link(link);
                    let distance = |p: &Point3<f64>| {
                        let p: [f32; 3] = (link_from_body * p).coords.cast().into();
                        let near = |axis: usize| {
                            p[axis] > bounds[0][axis] - NEAR_M && p[axis] < bounds[1][axis] + NEAR_M
                        };
                        let is_near = (0..3).all(near);
                        is_near
                            .then(|| robot.distance_m(link, &p))
                            .flatten()
                            .unwrap_or(f32::INFINITY)
                    };
                    let least = points.values().map(distance).fold(f32::INFINITY, f32::min);
                    if least <= NEAR_M {
                        touches.near.push((moment.secs, (*name).to_owned(), least));
                    }
                    let was_apart = apart.entry((link, id)).or_insert(least > APART_M);
                    if least > APART_M {
                        *was_apart = true;
                    } else if least <= TOUCH_M && std::mem::replace(was_apart, false) {
                        let body = self.names[usize::from(id)].clone().unwrap_or_default();
                        touches.begun.push(((*name).to_owned(), body, moment.secs));
                    }
                }
            }
        }
        touches
    }
}
