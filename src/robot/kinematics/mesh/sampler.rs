//! Points on a mesh, in proportion to area.

use super::{MAX_REACH_M, Mesh, Problem, Triangle};
use nalgebra::Vector3;
use std::sync::Arc;

/// A mesh under a scale, with a map from the unit square that keeps areas in proportion.
#[derive(Debug)]
pub(in crate::robot::kinematics) struct Sampler {
    mesh: Arc<Mesh>,
    scale: Vector3<f64>,
    /// Area (m²) of all triangles up to each one, itself included.
    ends: Vec<f64>,
}

impl Sampler {
    /// The mesh, each axis multiplied by `scale` (negative: mirrored).
    pub(super) fn new(mesh: Arc<Mesh>, scale: Vector3<f64>) -> Result<Self, Problem> {
        let reach = mesh.triangles.iter().flatten().map(|&corner| scaled(corner, scale).amax());
        let reach = reach.fold(0.0, f64::max);
        if !(scale.iter().all(|factor| factor.is_finite()) && reach <= MAX_REACH_M) {
            return Err(format!(
                "at scale {} {} {} it reaches {reach:.0} m from its origin, at most {MAX_REACH_M} m \
                 are taken: a mesh in millimetres needs scale=\"0.001 0.001 0.001\" in the URDF",
                scale.x, scale.y, scale.z
            ));
        }
        let mut area = 0.0;
        let sum = |triangle: &Triangle| {
            let [a, b, c] = triangle.map(|corner| scaled(corner, scale));
            area += (b - a).cross(&(c - a)).norm() / 2.0;
            area
        };
        let ends: Vec<f64> = mesh.triangles.iter().map(sum).collect();
        if area > 0.0 {
            Ok(Self { mesh, scale, ends })
        } else {
            Err("it has no surface: export it again, or correct its scale".to_owned())
        }
    }

    /// Square metres.
    pub(in crate::robot::kinematics) fn area(&self) -> f64 {
        self.ends.last().copied().unwrap_or(0.0)
    }

    /// Unit normal of the triangle of [`Sampler::point`] at `u`; either way round.
    pub(in crate::robot::kinematics) fn normal(&self, u: f64) -> Vector3<f64> {
        let [a, b, c] = self.triangle(u).0;
        (b - a).cross(&(c - a)).try_normalize(0.0).unwrap_or_else(Vector3::z)
    }

    /// Point (m, the mesh's frame) at `(u, v)` in 0..1: `u` chooses the triangle and the way from
    /// its first corner, `v` the way across.
    pub(in crate::robot::kinematics) fn point(&self, u: f64, v: f64) -> Vector3<f64> {
        let ([a, b, c], part) = self.triangle(u);
        let along = part.sqrt();
        a + (b - a) * along + (c - b) * (along * v)
    }

    /// The triangle that `u` chooses, and the share of its area that lies before.
    fn triangle(&self, u: f64) -> ([Vector3<f64>; 3], f64) {
        let target = u * self.area();
        // Triangles without area are never chosen: they end where they begin.
        let i = self.ends.partition_point(|&end| end <= target).min(self.ends.len() - 1);
        let before = if i == 0 { 0.0 } else { self.ends[i - 1] };
        let area = self.ends[i] - before;
        let part = if area > 0.0 { ((target - before) / area).clamp(0.0, 1.0) } else { 0.0 };
        (self.mesh.triangles[i].map(|corner| scaled(corner, self.scale)), part)
    }
}

fn scaled(corner: [f32; 3], scale: Vector3<f64>) -> Vector3<f64> {
    Vector3::from(corner.map(f64::from)).component_mul(&scale)
}
