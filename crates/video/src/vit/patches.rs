//! Pictures as rows of patches, and rows of patches as numbers of pixels.

use super::super::Picture;

/// Numbers of a pixel: red, green, blue, depth.
pub(super) const CHANNELS: usize = 4;

/// A picture that is cut into patches of `side` pixels; what reaches over its edge is empty.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patches {
    pub size: [usize; 2],
    pub grid: [usize; 2],
    pub side: usize,
}

impl Patches {
    pub fn len(&self) -> usize {
        self.grid[0] * self.grid[1]
    }

    pub fn n_pixels(&self) -> usize {
        self.size[0] * self.size[1]
    }

    /// Patch of each pixel, and its place in that.
    fn places(&self) -> impl Iterator<Item = (usize, usize)> {
        let Self { size: [width, height], grid, side } = *self;
        (0..height).flat_map(move |v| {
            (0..width).map(move |u| (v / side * grid[0] + u / side, v % side * side + u % side))
        })
    }

    /// Rows `[patches, side², n]` of numbers of pixels `[pixels, n]`.
    pub fn cut(&self, pixels: &[f32], n: usize) -> Vec<f32> {
        let len = self.side * self.side * n;
        let mut rows = vec![0.0; self.len() * len];
        for ((patch, at), pixel) in self.places().zip(pixels.chunks_exact(n)) {
            rows[patch * len + at * n..][..n].copy_from_slice(pixel);
        }
        rows
    }

    /// Adds rows `[patches, side², n]` to numbers of pixels `[pixels, n]`.
    pub fn join(&self, rows: &[f32], n: usize, pixels: &mut [f32]) {
        let len = self.side * self.side * n;
        for ((patch, at), pixel) in self.places().zip(pixels.chunks_exact_mut(n)) {
            let row = &rows[patch * len + at * n..][..n];
            pixel.iter_mut().zip(row).for_each(|(pixel, row)| *pixel += row);
        }
    }

    /// Mean of the measured depths of each patch (m); NaN where there is none.
    pub fn depths_m(&self, picture: &Picture) -> Vec<f32> {
        let mut sums = vec![(0.0, 0.0); self.len()];
        for ((patch, _), &depth_m) in self.places().zip(&picture.depths_m) {
            if depth_m.is_finite() {
                sums[patch] = (sums[patch].0 + depth_m, sums[patch].1 + 1.0);
            }
        }
        sums.into_iter().map(|(sum, n)| sum / n).collect()
    }
}

/// What is told of each pixel, `[pixels, 4]`, about zero: colours, and depth as a share of `far_m`, 0
/// where none was measured.
pub(super) fn pixels(picture: &Picture, far_m: f32) -> Vec<f32> {
    let depth = |depth_m: f32| match depth_m.is_finite() {
        true => (depth_m / far_m).clamp(0.0, 2.0) - 0.5,
        false => 0.0,
    };
    let colors = picture.colors.iter().map(|color| color.map(|c| f32::from(c) / 255.0 - 0.5));
    let pixel = |([r, g, b], &depth_m): ([f32; 3], &f32)| [r, g, b, depth(depth_m)];
    colors.zip(&picture.depths_m).flat_map(pixel).collect()
}
