//! Vectorised loops of the operations, compiled for each instruction set and chosen at run time
//! ([`crate::base::instruction_set`]).

pub mod exp;

use std::ops::Range;

use pulp::Simd;
pub use pulp::WithSimd;

const LANES: usize = 16;

/// Runs `kernel`, written once for any instruction set, with the widest that the processor has.
///
/// Unlike [`vectorize`]'s closures, a kernel names its vectors, so that products and sums are fused.
#[inline(always)]
pub fn dispatch<K: WithSimd>(kernel: K) -> K::Output {
    crate::base::instruction_set::arch().dispatch(kernel)
}

/// Dot products of `a` with `N` rows of its length.
#[inline(always)]
pub fn dots<S: Simd, const N: usize>(simd: S, a: &[f32], b: [&[f32]; N]) -> [f32; N] {
    let (a_vectors, a_tail) = S::as_simd_f32s(a);
    let mut rows = [(a_vectors, a_tail); N];
    for (split, row) in rows.iter_mut().zip(b) {
        *split = S::as_simd_f32s(&row[..a.len()]);
    }
    let mut sums = [simd.splat_f32s(0.0); N];
    for (c, &a) in a_vectors.iter().enumerate() {
        for (sum, (b, _)) in sums.iter_mut().zip(&rows) {
            *sum = simd.mul_add_e_f32s(a, b[c], *sum);
        }
    }
    let mut products = [0.0; N];
    // Loops, not closures of the standard library: those may be compiled apart, without the
    // instruction set.
    for ((product, sum), (_, b_tail)) in products.iter_mut().zip(sums).zip(&rows) {
        let tail: f32 = a_tail.iter().zip(*b_tail).map(|(a, b)| a * b).sum();
        *product = simd.reduce_sum_f32s(sum) + tail;
    }
    products
}

/// Σ f(x) over a row, f given for vectors and for the single numbers behind them.
///
/// Four sums at a time, so that no addition waits for the last one.
#[inline(always)]
pub fn sum_of<S: Simd>(
    simd: S,
    x: &[f32],
    vector: impl Fn(S::f32s, S::f32s) -> S::f32s,
    single: impl Fn(f32) -> f32,
) -> f32 {
    let (vectors, tail) = S::as_simd_f32s(x);
    let mut sums = [simd.splat_f32s(0.0); 4];
    let mut fours = vectors.chunks_exact(4);
    for four in fours.by_ref() {
        for (sum, &x) in sums.iter_mut().zip(four) {
            *sum = vector(*sum, x);
        }
    }
    for (sum, &x) in sums.iter_mut().zip(fours.remainder()) {
        *sum = vector(*sum, x);
    }
    let [a, b, c, d] = sums;
    let sum = simd.add_f32s(simd.add_f32s(a, b), simd.add_f32s(c, d));
    simd.reduce_sum_f32s(sum) + tail.iter().map(|&x| single(x)).sum::<f32>()
}

/// y += Σ a_r·x_r over `N` rows of y's length.
#[inline(always)]
pub fn axpys<S: Simd, const N: usize>(simd: S, y: &mut [f32], a: [f32; N], x: [&[f32]; N]) {
    let mut rows: [(&[S::f32s], &[f32]); N] = [(&[], &[]); N];
    let mut factors = [simd.splat_f32s(0.0); N];
    for n in 0..N {
        rows[n] = S::as_simd_f32s(&x[n][..y.len()]);
        factors[n] = simd.splat_f32s(a[n]);
    }
    let (y_vectors, y_tail) = S::as_mut_simd_f32s(y);
    for (c, y) in y_vectors.iter_mut().enumerate() {
        for (&factor, (x, _)) in factors.iter().zip(&rows) {
            *y = simd.mul_add_e_f32s(factor, x[c], *y);
        }
    }
    for (c, y) in y_tail.iter_mut().enumerate() {
        *y += a.iter().zip(&rows).map(|(a, (_, x))| a * x[c]).sum::<f32>();
    }
}

/// Defines a function whose body is compiled for each instruction set and chosen at run time.
///
/// For bodies that are too long for [`vectorize`], whose closures the compiler may leave outside of
/// what is compiled for each set: then they run on the narrowest vectors. References are `&'a`; with
/// `fn name[simd](…)` the body has the instructions as `simd`.
#[macro_export]
macro_rules! vectorized {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block) => {
        $crate::vectorized! { $(#[$meta])* $vis fn $name[_simd]($($arg: $type),*) $body }
    };
    ($(#[$meta:meta])* $vis:vis fn $name:ident[$simd:ident]($($arg:ident: $type:ty),* $(,)?) $body:block) => {
        $(#[$meta])*
        $vis fn $name<'a>($($arg: $type),*) {
            struct Kernel<'a> {
                $($arg: $type),*
            }
            impl<'a> $crate::base::simd::WithSimd for Kernel<'a> {
                type Output = ();
                #[inline(always)]
                fn with_simd<S: pulp::Simd>(self, $simd: S) {
                    let Self { $($arg),* } = self;
                    $body
                }
            }
            $crate::base::simd::dispatch(Kernel { $($arg),* })
        }
    };
}
pub use vectorized;

/// Runs `f` with the widest SIMD instructions that the processor has.
///
/// Only what is inlined into `f` profits: the helpers of this module are `inline(always)`.
#[inline(always)]
pub fn vectorize<R>(f: impl FnOnce() -> R) -> R {
    crate::base::instruction_set::arch().dispatch(f)
}

/// y += a·b, number by number.
#[inline(always)]
pub fn multiply_add<S: Simd>(simd: S, y: &mut [f32], a: &[f32], b: &[f32]) {
    let ((ys, y), (a_s, a)) = (S::as_mut_simd_f32s(y), S::as_simd_f32s(a));
    let (b_s, b) = S::as_simd_f32s(b);
    for ((y, &a), &b) in ys.iter_mut().zip(a_s).zip(b_s) {
        *y = simd.mul_add_e_f32s(a, b, *y);
    }
    y.iter_mut().zip(a).zip(b).for_each(|((y, a), b)| *y += a * b);
}

/// y = y·a, number by number.
#[inline(always)]
pub fn multiply<S: Simd>(simd: S, y: &mut [f32], a: &[f32]) {
    let ((ys, y), (a_s, a)) = (S::as_mut_simd_f32s(y), S::as_simd_f32s(a));
    ys.iter_mut().zip(a_s).for_each(|(y, &a)| *y = simd.mul_f32s(*y, a));
    y.iter_mut().zip(a).for_each(|(y, a)| *y *= a);
}

/// y += a.
#[inline(always)]
pub fn add<S: Simd>(simd: S, y: &mut [f32], a: f32) {
    let (ys, y) = S::as_mut_simd_f32s(y);
    let a_s = simd.splat_f32s(a);
    ys.iter_mut().for_each(|y| *y = simd.add_f32s(*y, a_s));
    y.iter_mut().for_each(|y| *y += a);
}

/// Dot product of two rows of equal length.
#[inline(always)]
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (a_chunks, b_chunks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let tail: f32 = a_chunks.remainder().iter().zip(b_chunks.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in a_chunks.zip(b_chunks) {
        for lane in 0..LANES {
            lanes[lane] += x[lane] * y[lane];
        }
    }
    sum_lanes(lanes) + tail
}

/// Dot product of two long rows of equal length.
#[inline(always)]
pub fn long_dot<S: Simd>(simd: S, a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_tail), (b, b_tail)) = (S::as_simd_f32s(a), S::as_simd_f32s(b));
    let mut sums = [simd.splat_f32s(0.0); 8];
    for (a, b) in a.chunks(8).zip(b.chunks(8)) {
        for (sum, (&a, &b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum = simd.mul_add_e_f32s(a, b, *sum);
        }
    }
    let [a, b, c, d, e, f, g, h] = sums;
    let half = [(a, b), (c, d), (e, f), (g, h)].map(|(a, b)| simd.add_f32s(a, b));
    let sum = simd.add_f32s(simd.add_f32s(half[0], half[1]), simd.add_f32s(half[2], half[3]));
    let tail: f32 = a_tail.iter().zip(b_tail).map(|(a, b)| a * b).sum();
    simd.reduce_sum_f32s(sum) + tail
}

/// Sum of a row.
#[inline(always)]
pub fn sum(a: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let chunks = a.chunks_exact(LANES);
    let tail: f32 = chunks.remainder().iter().sum();
    for x in chunks {
        for lane in 0..LANES {
            lanes[lane] += x[lane];
        }
    }
    sum_lanes(lanes) + tail
}

/// y += a·x.
#[inline(always)]
pub fn axpy(y: &mut [f32], a: f32, x: &[f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += a * x;
    }
}

/// Work on the columns of rows, done for so many vectors at a time that sums stay in registers.
pub trait Stretches<S: Simd> {
    /// Columns `at` of all rows: `N` vectors, or the part of one that is left.
    fn stretch<const N: usize>(&mut self, simd: S, at: Range<usize>);
}

/// Begins to fetch a row into the caches, where the processor is told how (x86-64).
#[inline(always)]
pub fn prefetch(row: &[f32]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let (mut at, last) = (0, row.len().saturating_sub(1));
        while at < last {
            // SAFETY: every x86-64 has the instruction, and it reads nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(row.as_ptr().wrapping_add(at).cast()) };
            at += LANES;
        }
        // SAFETY: the same. The row may begin within a line of the cache.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(row.as_ptr().wrapping_add(last).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = row;
}

/// All of `width` columns.
#[inline(always)]
pub fn by_stretches<S: Simd>(simd: S, width: usize, mut work: impl Stretches<S>) {
    let (lanes, mut at) = (S::F32_LANES, 0);
    // Eight sums at once are what it takes to hide that a multiply-add is four cycles long.
    while at + 8 * lanes <= width {
        work.stretch::<8>(simd, at..at + 8 * lanes);
        at += 8 * lanes;
    }
    while at + 4 * lanes <= width {
        work.stretch::<4>(simd, at..at + 4 * lanes);
        at += 4 * lanes;
    }
    while at + 2 * lanes <= width {
        work.stretch::<2>(simd, at..at + 2 * lanes);
        at += 2 * lanes;
    }
    while at + lanes <= width {
        work.stretch::<1>(simd, at..at + lanes);
        at += lanes;
    }
    if at < width {
        work.stretch::<1>(simd, at..width);
    }
}

/// A stretch's numbers.
#[inline(always)]
pub fn load<S: Simd, const N: usize>(simd: S, stretch: &[f32]) -> [S::f32s; N] {
    let (whole, rest) = S::as_simd_f32s(stretch);
    let mut vectors = [simd.splat_f32s(0.0); N];
    match whole.len() < N {
        true => vectors[0] = simd.partial_load_f32s(rest),
        false => vectors.copy_from_slice(&whole[..N]),
    }
    vectors
}

/// Writes a stretch.
#[inline(always)]
pub fn store<S: Simd, const N: usize>(simd: S, stretch: &mut [f32], vectors: [S::f32s; N]) {
    let (whole, rest) = S::as_mut_simd_f32s(stretch);
    match whole.len() < N {
        true => simd.partial_store_f32s(rest, vectors[0]),
        false => whole[..N].copy_from_slice(&vectors),
    }
}

/// sum += a·stretch.
#[inline(always)]
pub fn add_stretch<S: Simd, const N: usize>(
    simd: S,
    sum: &mut [S::f32s; N],
    a: f32,
    stretch: &[f32],
) {
    let (a, x) = (simd.splat_f32s(a), load::<S, N>(simd, stretch));
    for n in 0..N {
        sum[n] = simd.mul_add_e_f32s(a, x[n], sum[n]);
    }
}

/// y = Σ a·x_j over `terms` (a, j), x_j the rows of `x` that are as long as y.
#[inline(always)]
pub fn sum_of_rows<S: Simd>(
    simd: S,
    y: &mut [f32],
    x: &[f32],
    terms: impl Iterator<Item = (f32, usize)> + Clone,
) {
    by_stretches(simd, y.len(), SumOfRows { y, x, terms });
}

struct SumOfRows<'a, I> {
    y: &'a mut [f32],
    x: &'a [f32],
    terms: I,
}

impl<S: Simd, I: Iterator<Item = (f32, usize)> + Clone> Stretches<S> for SumOfRows<'_, I> {
    #[inline(always)]
    fn stretch<const N: usize>(&mut self, simd: S, at: Range<usize>) {
        let (mut sum, width) = ([simd.splat_f32s(0.0); N], self.y.len());
        for (a, j) in self.terms.clone() {
            add_stretch(simd, &mut sum, a, &self.x[j * width..][at.clone()]);
        }
        store(simd, &mut self.y[at], sum);
    }
}

/// y = a·x.
#[inline(always)]
pub fn scaled<S: Simd>(simd: S, y: &mut [f32], a: f32, x: &[f32]) {
    let ((ys, y), (xs, x)) = (S::as_mut_simd_f32s(y), S::as_simd_f32s(x));
    let a_s = simd.splat_f32s(a);
    ys.iter_mut().zip(xs).for_each(|(y, &x)| *y = simd.mul_f32s(a_s, x));
    y.iter_mut().zip(x).for_each(|(y, x)| *y = a * x);
}

#[inline(always)]
fn sum_lanes(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}
