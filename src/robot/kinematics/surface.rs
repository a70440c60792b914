//! Points on the surfaces of a link's geometry.

use super::mesh::{Meshes, Sampler};
use super::tree::isometry;
use super::urdf_error;
use crate::base::error::Result;
use nalgebra::{Isometry3, Point3, Vector3};
use std::f64::consts::TAU;
use std::sync::Arc;
use urdf_rs::{Geometry, Link, Pose};

/// Radius of the tube that stands for a mesh when points are shared out by area, metres.
const MESH_RADIUS_M: f64 = 0.03;

/// A piece of surface with a map from the unit square that keeps areas in proportion.
#[derive(Debug, Clone)]
pub(super) struct Patch {
    link_from_shape: Isometry3<f64>,
    shape: Shape,
    /// Square metres.
    pub area: f64,
}

#[derive(Debug, Clone)]
enum Shape {
    /// Centre and the two half edges.
    Rectangle(Vector3<f64>, Vector3<f64>, Vector3<f64>),
    /// Radius and z.
    Disc(f64, f64),
    /// Radius and length along z, centred.
    Tube(f64, f64),
    /// Radius, z of the centre, and range of the normal's z.
    Sphere(f64, f64, [f64; 2]),
    /// From the origin to this point.
    Segment(Vector3<f64>),
    /// A mesh that was read.
    Mesh(Arc<Sampler>),
}

impl Patch {
    /// Point of the patch (link frame, m) at `(u, v)` in 0..1.
    pub(super) fn point(&self, u: f64, v: f64) -> Point3<f64> {
        let point = match &self.shape {
            Shape::Rectangle(center, a, b) => center + a * (2.0 * u - 1.0) + b * (2.0 * v - 1.0),
            &Shape::Disc(radius, z) => around(radius * u.sqrt(), v, z),
            &Shape::Tube(radius, length) => around(radius, v, length * (u - 0.5)),
            &Shape::Sphere(radius, center, [low, high]) => {
                let normal = low + (high - low) * u;
                let ring = (1.0 - normal * normal).max(0.0).sqrt();
                around(radius * ring, v, center + radius * normal)
            }
            Shape::Segment(end) => end * u,
            Shape::Mesh(mesh) => mesh.point(u, v),
        };
        self.link_from_shape * Point3::from(point)
    }
}

impl Patch {
    /// Unit normal of the surface (link frame) at the point `(u, v)`, either way round; none of a line,
    /// which stands for a mesh that could not be read.
    pub(super) fn normal(&self, u: f64, v: f64) -> Option<Vector3<f64>> {
        let normal = match &self.shape {
            Shape::Rectangle(_, a, b) => a.cross(b).try_normalize(0.0)?,
            Shape::Disc(..) => Vector3::z(),
            Shape::Tube(..) => around(1.0, v, 0.0),
            &Shape::Sphere(_, _, [low, high]) => {
                let z = low + (high - low) * u;
                around((1.0 - z * z).max(0.0).sqrt(), v, z)
            }
            Shape::Segment(_) => return None,
            Shape::Mesh(mesh) => mesh.normal(u),
        };
        Some(self.link_from_shape * normal)
    }
}

/// Point at `turn` (0..1) on the circle about z.
fn around(radius: f64, turn: f64, z: f64) -> Vector3<f64> {
    let (sin, cos) = (TAU * turn).sin_cos();
    Vector3::new(radius * cos, radius * sin, z)
}

/// Surface of a link; `is_guess` if it stands for meshes of which none could be used.
pub(super) struct Surface {
    pub patches: Vec<Patch>,
    pub is_guess: bool,
}

/// Surface of `link`: its visuals, or else its collisions; a model that can be used wholly comes
/// before one of which some meshes can't.
///
/// Visuals come first although collision meshes are smaller: particles stand for what cameras see,
/// and of collision meshes, hulls mostly, a tenth lies over 1 cm from it (Panda, UR5e, iiwa), while 91
/// to 98 % of the visuals' area can be seen from outside: few points are lost on inner walls.
///
/// Where no mesh can be used: the segments to `children` (origins of the child joints, link frame),
/// or the link's origin if there are none.
///
/// # Errors
/// [`crate::Error::Urdf`] if a size or pose is negative or not finite.
pub(super) fn surface(
    link: &Link,
    children: &[Vector3<f64>],
    meshes: &mut Meshes,
) -> Result<Surface> {
    let visuals: Vec<_> = link.visual.iter().map(|v| (&v.origin, &v.geometry)).collect();
    let collisions: Vec<_> = link.collision.iter().map(|c| (&c.origin, &c.geometry)).collect();
    let is_mesh = |shape: &(&Pose, &Geometry)| matches!(shape.1, Geometry::Mesh { .. });
    let models = [&visuals, &collisions];
    let mut in_part = Vec::new();
    for model in models {
        let (patches, is_whole) = patches(&link.name, model, meshes)?;
        if is_whole && !patches.is_empty() {
            return Ok(Surface { patches, is_guess: false });
        }
        if in_part.is_empty() {
            in_part = patches;
        }
    }
    let is_guess = in_part.is_empty() && models.into_iter().flatten().any(is_mesh);
    if is_guess {
        let zero = [Vector3::zeros()];
        let ends = if children.is_empty() { &zero[..] } else { children };
        in_part.extend(ends.iter().map(|&end| segment(end)));
    }
    Ok(Surface { patches: in_part, is_guess })
}

/// Patches of a link's visual or collision model, and whether they are all of it.
fn patches(
    link: &str,
    model: &[(&Pose, &Geometry)],
    meshes: &mut Meshes,
) -> Result<(Vec<Patch>, bool)> {
    let mut patches = Vec::new();
    let mut is_whole = true;
    for &(origin, geometry) in model {
        let shapes = match geometry {
            Geometry::Mesh { filename, scale } => {
                let scale = scale.map_or(Vector3::repeat(1.0), |scale| Vector3::from(*scale));
                let mesh = meshes.sampler(filename, scale);
                is_whole &= mesh.is_some();
                let shape = |mesh: Arc<Sampler>| (Shape::Mesh(mesh.clone()), mesh.area());
                mesh.map(shape).into_iter().collect()
            }
            _ => shapes_of(geometry),
        };
        for (shape, area) in shapes {
            let pose = origin.xyz.iter().chain(origin.rpy.iter());
            if !area.is_finite() || area < 0.0 || pose.clone().any(|x| !x.is_finite()) {
                let problem = format!("link '{link}': geometry {geometry:?} at {origin:?}");
                return Err(urdf_error(format!("{problem} is negative or not finite")));
            }
            patches.push(Patch { link_from_shape: isometry(origin), shape, area });
        }
    }
    Ok((patches, is_whole))
}

fn segment(end: Vector3<f64>) -> Patch {
    let area = TAU * MESH_RADIUS_M * end.norm().max(2.0 * MESH_RADIUS_M);
    Patch { link_from_shape: Isometry3::identity(), shape: Shape::Segment(end), area }
}

/// Shapes and their areas (m²); a size that is negative or not finite gives such an area.
fn shapes_of(geometry: &Geometry) -> Vec<(Shape, f64)> {
    let disc = |radius: f64, z| (Shape::Disc(radius, z), TAU / 2.0 * radius * radius.abs());
    let tube = |radius: f64, length: f64| {
        let area = if length < 0.0 { -1.0 } else { TAU * radius * length };
        (Shape::Tube(radius, length), area)
    };
    let sphere = |radius: f64, z, normals: [f64; 2]| {
        let area = TAU * radius * radius.abs() * (normals[1] - normals[0]);
        (Shape::Sphere(radius, z, normals), area)
    };
    match *geometry {
        Geometry::Box { size } => faces(*size),
        Geometry::Cylinder { radius, length } => {
            let z = length / 2.0;
            vec![tube(radius, length), disc(radius, z), disc(radius, -z)]
        }
        Geometry::Capsule { radius, length } => {
            let z = length / 2.0;
            let caps = [sphere(radius, z, [0.0, 1.0]), sphere(radius, -z, [-1.0, 0.0])];
            [tube(radius, length)].into_iter().chain(caps).collect()
        }
        Geometry::Sphere { radius } => vec![sphere(radius, 0.0, [-1.0, 1.0])],
        Geometry::Mesh { .. } => Vec::new(),
    }
}

fn faces(size: [f64; 3]) -> Vec<(Shape, f64)> {
    let negative = size.iter().any(|&edge| edge < 0.0);
    let face = |axis: usize, side: f64| {
        let half = |i: usize| Vector3::ith(i, size[i] / 2.0);
        let (a, b) = ((axis + 1) % 3, (axis + 2) % 3);
        let area = if negative { -1.0 } else { size[a] * size[b] };
        (Shape::Rectangle(half(axis) * side, half(a), half(b)), area)
    };
    (0..3).flat_map(|axis| [face(axis, 1.0), face(axis, -1.0)]).collect()
}

/// Point `i` of the R2 sequence (Roberts 2018): evenly spread over the unit square.
pub(super) fn low_discrepancy(i: usize) -> [f64; 2] {
    // Inverse of the plastic number, and its square.
    const STEPS: [f64; 2] = [0.754_877_666_246_692_8, 0.569_840_290_998_053_3];
    STEPS.map(|step| (0.5 + step * (i + 1) as f64).fract())
}
