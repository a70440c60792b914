//! Transforms of full grids: what a block-Toeplitz product is made of. The grid is laid into a larger one
//! with room for the reach on each axis, where the product is a circular convolution.

use std::fmt;
use std::sync::Arc;

use rustfft::num_complex::Complex64;
use rustfft::{Fft, FftPlanner};

use forecloud::base::scratch::with_scratch;
use forecloud::{Error, Result};

/// Most nodes of a grid with the room around it: 1 GiB for the few copies that a product makes.
const MAX_NODES: usize = 1 << 24;

/// One axis of the grid.
#[derive(Clone)]
pub(super) struct Axis {
    pub len: usize,
    pub reach: usize,
    /// With room for the reach: a length that the transform is fast on.
    pub padded: usize,
    forward: Arc<dyn Fft<f64>>,
    inverse: Arc<dyn Fft<f64>>,
}

/// A full grid in the larger one.
#[derive(Clone)]
pub(super) struct PaddedGrid {
    axes: Vec<Axis>,
    scratch_len: usize,
}

impl fmt::Debug for PaddedGrid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.axes.iter().map(|axis| (axis.len, axis.reach))).finish()
    }
}

/// The next length whose only factors are 2, 3 and 5.
fn fast_len(len: usize) -> usize {
    let is_fast = |len: &usize| {
        let without = |mut len: usize, factor| {
            while len.is_multiple_of(factor) {
                len /= factor;
            }
            len
        };
        without(without(without(*len, 2), 3), 5) == 1
    };
    (len.max(1)..).find(is_fast).unwrap_or(len)
}

/// Four numbers each are one complex number.
fn complex(numbers: &mut [f32]) -> &mut [Complex64] {
    // SAFETY: a complex number is two f64 in a row (repr(C)), of which any bits are numbers.
    let (unaligned, complex, _) = unsafe { numbers.align_to_mut() };
    debug_assert!(unaligned.is_empty(), "scratch begins at a line of the cache");
    complex
}

impl PaddedGrid {
    /// The grid of `shape` with room for `reach` places along each axis.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there is a reach for each axis and the grid is not too large.
    pub fn new(shape: &[usize], reach: &[usize]) -> Result<Self> {
        if shape.len() != reach.len() {
            let (expected, got) = (shape.len(), reach.len());
            return Err(Error::Shape { what: "reaches of a grid's axes", expected, got });
        }
        let padded = |(&len, &reach): (&usize, &usize)| match len.checked_add(reach) {
            Some(sum) if sum <= MAX_NODES => fast_len(sum),
            _ => MAX_NODES + 1,
        };
        let all = shape.iter().zip(reach).map(padded).fold(1usize, usize::saturating_mul);
        // An offset is one of the larger grid's places, unless the axis is shorter than the reach.
        let too_far = shape.iter().zip(reach).find(|(len, reach)| **reach >= (**len).max(1));
        if let Some((&len, &got)) = too_far {
            let what = "reach along an axis of the grid (at most, one less than it is long)";
            return Err(Error::Shape { what, expected: len.saturating_sub(1), got });
        }
        if all > MAX_NODES {
            let what = "places of a grid, with room for its reach (at most)";
            return Err(Error::Shape { what, expected: MAX_NODES, got: all });
        }
        let mut planner = FftPlanner::new();
        let axes: Vec<Axis> = (shape.iter().zip(reach))
            .map(|(&len, &reach)| {
                let padded = padded((&len, &reach));
                let (forward, inverse) =
                    (planner.plan_fft_forward(padded), planner.plan_fft_inverse(padded));
                Axis { len, reach, padded, forward, inverse }
            })
            .collect();
        let scratch = |axis: &Axis| {
            axis.forward.get_inplace_scratch_len().max(axis.inverse.get_inplace_scratch_len())
        };
        let scratch_len = axes.iter().map(scratch).max().unwrap_or(0);
        Ok(Self { axes, scratch_len })
    }

    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// Nodes of the larger grid.
    pub fn len(&self) -> usize {
        self.axes.iter().map(|axis| axis.padded).product()
    }

    /// Transforms the larger grid `[a_0, …, a_d]` along each axis, the last first; the spectrum is told as
    /// `[a_1, …, a_d, a_0]`. Rows along the last axis are zeros, and taken for such, beyond `n_rows` of the
    /// first axis. Gives the spectrum and the memory that is not needed for it.
    pub fn forward<'a>(
        &self,
        n_rows: usize,
        mut grid: &'a mut [Complex64],
        mut other: &'a mut [Complex64],
        scratch: &mut [Complex64],
    ) -> (&'a mut [Complex64], &'a mut [Complex64]) {
        let filled = self.filled(n_rows);
        for (at, axis) in self.axes.iter().enumerate().rev() {
            let is_last = at + 1 == self.axes.len();
            let len = if is_last { filled } else { grid.len() };
            axis.forward.process_with_scratch(&mut grid[..len], scratch);
            if at > 0 {
                turn(grid, other, axis.padded);
                (grid, other) = (other, grid);
            }
        }
        (grid, other)
    }

    /// Back from a spectrum of [`PaddedGrid::forward`], times the grid's length, for the rows along the last
    /// axis up to `n_rows` of the first axis; the others are of no use.
    pub fn inverse<'a>(
        &self,
        n_rows: usize,
        mut grid: &'a mut [Complex64],
        mut other: &'a mut [Complex64],
        scratch: &mut [Complex64],
    ) -> (&'a mut [Complex64], &'a mut [Complex64]) {
        let filled = self.filled(n_rows);
        for (at, axis) in self.axes.iter().enumerate() {
            if at > 0 {
                turn(grid, other, grid.len() / axis.padded);
                (grid, other) = (other, grid);
            }
            let is_last = at + 1 == self.axes.len();
            let len = if is_last { filled } else { grid.len() };
            axis.inverse.process_with_scratch(&mut grid[..len], scratch);
        }
        (grid, other)
    }

    /// Numbers of the larger grid up to `n_rows` of its first axis; all where that is its only one.
    fn filled(&self, n_rows: usize) -> usize {
        match &self.axes[..] {
            [first, _, ..] => self.len() / first.padded.max(1) * n_rows.min(first.padded),
            _ => self.len(),
        }
    }

    /// Runs `f` with `n` larger grids of complex zeros, one to turn them in, and scratch.
    pub fn with<R>(
        &self,
        n: usize,
        f: impl FnOnce(&mut [Complex64], &mut [Complex64], &mut [Complex64]) -> R,
    ) -> R {
        let len = self.len();
        // One more, should memory not begin where such a number may.
        with_scratch(4 * ((n + 1) * len + self.scratch_len + 1), |numbers| {
            let (grids, rest) = complex(numbers).split_at_mut(n * len);
            let (other, scratch) = rest.split_at_mut(len);
            grids.fill(Complex64::default());
            f(grids, other, scratch)
        })
    }

    /// Places in the larger grid of all positions of a grid with `len` an axis, row-major.
    pub fn places(
        &self,
        len: impl Fn(&Axis) -> usize,
        at: impl Fn(&Axis, usize) -> usize,
    ) -> Vec<u32> {
        self.axes.iter().fold(vec![0], |rows, axis| {
            let along = |row: u32| (0..len(axis)).map(move |i| (row, i));
            let place = |(row, i)| row * axis.padded as u32 + at(axis, i) as u32;
            rows.into_iter().flat_map(along).map(place).collect()
        })
    }
}

/// `to` = the rows `[_, width]` of `from` as columns.
fn turn(from: &[Complex64], to: &mut [Complex64], width: usize) {
    const TILE: usize = 16;
    let rows = from.len() / width;
    for (top, left) in
        (0..rows).step_by(TILE).flat_map(|i| (0..width).step_by(TILE).map(move |j| (i, j)))
    {
        for j in left..(left + TILE).min(width) {
            for i in top..(top + TILE).min(rows) {
                to[j * rows + i] = from[i * width + j];
            }
        }
    }
}
