//! Points and displacements, and the little arithmetic that they need.
//!
//! Plain arrays: that is how clouds lie in memory, and every sum here has one fixed order, so that
//! results are the same to the bit on any machine and on a GPU.

/// A point or a displacement: x, y, z (m unless said otherwise).
pub type Vec3 = [f32; 3];

/// a - b.
#[inline(always)]
pub fn minus(a: &Vec3, b: &Vec3) -> Vec3 {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

/// a + b.
#[inline(always)]
pub fn plus(a: &Vec3, b: &Vec3) -> Vec3 {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

/// a += b.
#[inline(always)]
pub fn add(a: &mut Vec3, b: &Vec3) {
    *a = plus(a, b);
}

/// a · b.
#[inline(always)]
pub fn dot(a: &Vec3, b: &Vec3) -> f32 {
    (a[0] * b[0] + a[1] * b[1]) + a[2] * b[2]
}

/// Euclidean length.
#[inline(always)]
pub fn length(v: &Vec3) -> f32 {
    dot(v, v).sqrt()
}

/// Squared distance of two points; ties are the same everywhere.
#[inline(always)]
pub fn squared_distance(a: &Vec3, b: &Vec3) -> f32 {
    let d = minus(a, b);
    dot(&d, &d)
}

/// Distance of two points.
#[inline(always)]
pub fn distance(a: &Vec3, b: &Vec3) -> f32 {
    squared_distance(a, b).sqrt()
}

/// Least and greatest coordinate along each axis; infinite the wrong way round of no points.
pub fn bounds(points: &[Vec3]) -> [Vec3; 2] {
    let (mut min, mut max) = ([f32::INFINITY; 3], [f32::NEG_INFINITY; 3]);
    for p in points {
        min = std::array::from_fn(|axis| min[axis].min(p[axis]));
        max = std::array::from_fn(|axis| max[axis].max(p[axis]));
    }
    [min, max]
}
