//! Arrays in and out.
//!
//! `forecloud/_arrays.py` makes what comes in C-contiguous and of the right type; here shapes and values
//! are checked again, whoever calls.

use nalgebra::{Isometry3, Quaternion, Translation3, UnitQuaternion};
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::prelude::*;

use crate::errors::{Kind, raise};

/// A pose: position (m) and quaternion x, y, z, w.
pub type Pose = [f64; 7];

/// Elements of a contiguous array of this shape; -1 stands for any number.
pub fn slice<'a, T: numpy::Element, const D: usize>(
    what: &str,
    array: &'a PyReadonlyArrayDyn<'_, T>,
    shape: [isize; D],
) -> PyResult<&'a [T]> {
    let got = array.shape();
    let fits = |(&got, &want): (&usize, &isize)| want < 0 || got as isize == want;
    if got.len() != D || !got.iter().zip(&shape).all(fits) {
        let n = |&n: &isize| if n < 0 { "n".to_owned() } else { n.to_string() };
        let shape: Vec<String> = shape.iter().map(n).collect();
        let shape = shape.join(", ");
        return Err(input(format!("{what}: expected shape [{shape}], got {got:?}")));
    }
    array
        .as_slice()
        .map_err(|_| input(format!("{what}: not contiguous; pass numpy.ascontiguousarray(…)")))
}

/// [`slice`] of numbers that are all finite.
pub fn finite<'a, const D: usize>(
    what: &str,
    array: &'a PyReadonlyArrayDyn<'_, f32>,
    shape: [isize; D],
) -> PyResult<&'a [f32]> {
    let numbers = slice(what, array, shape)?;
    match numbers.iter().position(|x| !x.is_finite()) {
        Some(at) => Err(input(format!("{what}: number {at} is {}, not finite", numbers[at]))),
        None => Ok(numbers),
    }
}

/// Points `[n, 3]`, all of them finite.
pub fn points(what: &str, array: &PyReadonlyArrayDyn<'_, f32>) -> PyResult<Vec<[f32; 3]>> {
    let flat = slice(what, array, [-1, 3])?;
    if let Some(at) = flat.iter().position(|x| !x.is_finite()) {
        return Err(input(format!(
            "{what}: row {} holds {}; drop such rows first",
            at / 3,
            flat[at]
        )));
    }
    let (rows, _) = flat.as_chunks::<3>();
    Ok(rows.to_vec())
}

/// The exception of an input that makes no sense.
pub fn input(message: String) -> PyErr {
    raise(Kind::Input, message)
}

/// Rows as an array `[n, 3]` that owns them.
pub fn rows<'py, T: numpy::Element + Clone>(
    py: Python<'py>,
    rows: &[[T; 3]],
) -> PyResult<Bound<'py, PyAny>> {
    let n = rows.len();
    Ok(PyArray1::from_slice(py, rows.as_flattened()).reshape([n, 3])?.into_any())
}

/// The transform of a pose.
pub fn isometry(what: &str, pose: &Pose) -> PyResult<Isometry3<f64>> {
    let [x, y, z, qx, qy, qz, qw] = *pose;
    if !pose.iter().all(|x| x.is_finite()) {
        return Err(input(format!("{what}: the pose holds a number that is not finite")));
    }
    let quaternion = Quaternion::new(qw, qx, qy, qz);
    let norm = quaternion.norm();
    if (norm - 1.0).abs() > 1e-3 {
        return Err(input(format!(
            "{what}: the quaternion x, y, z, w has length {norm:.4}, not 1: normalise it"
        )));
    }
    // What came from a recording goes back to the bit.
    let rotation = if (norm - 1.0).abs() < 1e-12 {
        UnitQuaternion::new_unchecked(quaternion)
    } else {
        UnitQuaternion::from_quaternion(quaternion)
    };
    Ok(Isometry3::from_parts(Translation3::new(x, y, z), rotation))
}

/// The pose of a transform.
pub fn pose(isometry: &Isometry3<f64>) -> Pose {
    let (t, q) = (&isometry.translation.vector, isometry.rotation.quaternion());
    [t.x, t.y, t.z, q.i, q.j, q.k, q.w]
}
