//! Random fields over an image: smooth noise, and holes.

/// Noise that neighbouring pixels have in common: normal values on a lattice, and between them,
/// with variance 1 everywhere.
pub(super) struct Field {
    spacing: f32,
    /// Place of each column.
    places: Vec<Place>,
    n_columns: usize,
    /// Row by row.
    values: Vec<f32>,
}

/// The lattice index before a pixel, and the weights of this one and the next: their squares sum
/// to 1, which keeps the variance.
#[derive(Clone, Copy)]
struct Place {
    before: usize,
    weights: [f32; 2],
}

impl Place {
    fn new(pixel: usize, spacing: f32) -> Self {
        let at = pixel as f32 / spacing;
        let after = at.fract();
        let before = 1.0 - after;
        let norm = (before * before + after * after).sqrt();
        Self { before: at as usize, weights: [before / norm, after / norm] }
    }
}

impl Field {
    /// Over an image of `size` (columns, rows), of lattice values `spacing` (at least 1) pixels
    /// apart, which `value` gives by their index.
    pub(super) fn new(
        [width, height]: [usize; 2],
        spacing: f32,
        value: impl Fn(usize) -> f32,
    ) -> Self {
        // One more than the last pixel's place, so that each pixel lies between two.
        let n = |pixels: usize| (pixels as f32 / spacing) as usize + 2;
        let places = (0..width).map(|u| Place::new(u, spacing)).collect();
        let n_columns = n(width);
        let values = (0..n_columns * n(height)).map(value).collect();
        Self { spacing, places, n_columns, values }
    }

    /// The values of image row `v`.
    pub(super) fn row(&self, v: usize, out: &mut [f32]) {
        let Place { before, weights: [above, below] } = Place::new(v, self.spacing);
        let upper = &self.values[before * self.n_columns..][..self.n_columns];
        let lower = &self.values[(before + 1) * self.n_columns..][..self.n_columns];
        for (out, place) in out.iter_mut().zip(&self.places) {
            let value = |i: usize| above * upper[i] + below * lower[i];
            let [left, right] = place.weights;
            *out = left * value(place.before) + right * value(place.before + 1);
        }
    }
}

/// Round holes, one in a square cell at most.
pub(super) struct Holes {
    /// Largest radius; the least is a quarter of it.
    pub(super) radius_px: f32,
    /// Share of the pixels that lie in holes.
    pub(super) share: f32,
}

impl Holes {
    /// Share that cells with a hole each have, a little less.
    pub(super) const MAX_SHARE: f32 = 0.08;
    /// Side of a cell in radii.
    const CELL: f32 = 4.0;

    /// Sets pixels in holes to NaN; `bits` are those of a cell.
    pub(super) fn punch(
        &self,
        [width, height]: [usize; 2],
        out: &mut [f32],
        bits: impl Fn(usize) -> u64,
    ) {
        let side = self.radius_px * Self::CELL;
        // Mean area of a hole: π times the mean of the squared radius, uniform in [1/4, 1].
        let area = std::f32::consts::PI * 0.4375 * self.radius_px * self.radius_px;
        let probability = self.share * side * side / area;
        let n = |pixels: usize| (pixels as f32 / side) as usize + 1;
        for cell in 0..n(width) * n(height) {
            // Four independent numbers of 16 bits.
            let bits = bits(cell);
            let part = |i: u32| ((bits >> (16 * i)) as u16) as f32 / 65_536.0;
            if part(0) >= probability {
                continue;
            }
            let radius = self.radius_px * (0.25 + 0.75 * part(1));
            let x = ((cell % n(width)) as f32 + part(2)) * side;
            let y = ((cell / n(width)) as f32 + part(3)) * side;
            // The conversion saturates below 0.
            let span = |at: f32, n: usize| {
                (at - radius).ceil() as usize..((at + radius) as usize + 1).min(n)
            };
            for v in span(y, height) {
                for u in span(x, width) {
                    let (dx, dy) = (u as f32 - x, v as f32 - y);
                    if dx * dx + dy * dy <= radius * radius {
                        out[v * width + u] = f32::NAN;
                    }
                }
            }
        }
    }
}
