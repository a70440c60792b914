//! Packing and padding: several scenes in one pass, none of which hears another, M block-diagonal; nodes
//! of no scene hear nobody and are heard by nobody (masked attention, section 3.1). A product is those of
//! the scenes' masks: O(N) where theirs are linear.

use super::Mask;

/// A stretch of nodes.
#[derive(Debug)]
pub enum Part {
    /// A scene under its mask.
    Scene(Box<dyn Mask>),
    /// A scene of so many nodes that all hear each other.
    Open(usize),
    /// So many nodes that are only there to fill up.
    Padding(usize),
}

impl Part {
    fn n_nodes(&self) -> usize {
        match self {
            Self::Scene(mask) => mask.n_nodes(),
            Self::Open(n) | Self::Padding(n) => *n,
        }
    }
}

/// Scenes one after the other; the parameters are shared by all.
#[derive(Debug)]
pub struct Packed(pub Vec<Part>);

impl Packed {
    /// Runs `f` on each part with its range of numbers in columns of `len` numbers.
    fn each(&self, len: usize, mut f: impl FnMut(&Part, std::ops::Range<usize>)) {
        let width = len / self.n_nodes().max(1);
        let mut start = 0;
        for part in &self.0 {
            let end = start + part.n_nodes() * width;
            f(part, start..end);
            start = end;
        }
    }

    fn product(&self, x: &[f32], y: &mut [f32], of: impl Fn(&dyn Mask, &[f32], &mut [f32])) {
        let width = x.len() / self.n_nodes().max(1);
        self.each(x.len(), |part, at| match part {
            Part::Scene(mask) => of(mask.as_ref(), &x[at.clone()], &mut y[at]),
            Part::Padding(_) => y[at].fill(0.0),
            Part::Open(0) => {}
            Part::Open(_) => {
                let (x, y) = (&x[at.clone()], &mut y[at]);
                let (sum, others) = y.split_at_mut(width);
                sum.fill(0.0);
                for row in x.chunks_exact(width.max(1)) {
                    sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
                }
                others.chunks_exact_mut(width.max(1)).for_each(|y| y.copy_from_slice(sum));
            }
        });
    }
}

impl Mask for Packed {
    fn n_nodes(&self) -> usize {
        self.0.iter().map(Part::n_nodes).sum()
    }

    fn apply(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.product(x, y, |mask, x, y| mask.apply(params, x, y));
    }

    fn apply_transposed(&self, params: &[f32], x: &[f32], y: &mut [f32]) {
        self.product(x, y, |mask, x, y| mask.apply_transposed(params, x, y));
    }

    fn gradients(&self, params: &[f32], x: &[f32], dy: &[f32], d_params: &mut [f64]) {
        self.each(x.len(), |part, at| {
            if let Part::Scene(mask) = part {
                mask.gradients(params, &x[at.clone()], &dy[at], d_params);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::{assert_products, softplus64};
    use super::super::{GridHeat, Toeplitz};
    use super::*;

    #[test]
    fn the_packed_mask_is_the_dense_one() {
        let path = |n: usize| Part::Scene(Box::new(GridHeat::new(&[n]).unwrap()));
        let scenes = [
            path(4),
            Part::Padding(2),
            Part::Open(3),
            path(0),
            path(1),
            Part::Open(0),
            Part::Padding(1),
        ];
        let scene = [0, 0, 0, 0, 1, 1, 2, 2, 2, 3, 4];
        let n = scene.len();
        assert_products("packed scenes", &Packed(scenes.into()), 1, 1e-5, |params| {
            let t = softplus64(params[0]).tanh();
            let entry = |at: usize| match (scene[at / n], scene[at % n]) {
                (i, j) if i != j => 0.0,
                (1 | 4, _) => 0.0,
                (2, _) => 1.0,
                _ => t.powi((at / n).abs_diff(at % n) as i32),
            };
            (0..n * n).map(entry).collect()
        });
        assert_products("no scenes", &Packed(vec![]), 1, 1e-5, |_| vec![]);
        let image = Toeplitz::new(&[2, 2], &[1, 1]).unwrap();
        let alone = Packed(vec![Part::Scene(Box::new(image.clone()))]);
        let (x, mut a, mut b) = ([1.0, -2.0, 3.0, 0.5], [0.0; 4], [0.0; 4]);
        alone.apply(&[0.1; 9], &x, &mut a);
        image.apply(&[0.1; 9], &x, &mut b);
        assert_eq!(a, b);
    }
}
