//! How alike two pictures are: structural similarity and peak signal-to-noise ratio.

/// Deviation of the window's Gaussian, pixels.
const SIGMA: f64 = 1.5;
/// Half of the window: where the Gaussian is cut, 3.5 deviations off, rounded.
const RADIUS: usize = 5;
/// Stabilisers of the means' and the deviations' ratios, of colours from 0 to 1.
const C1: f64 = 0.01 * 0.01;
const C2: f64 = 0.03 * 0.03;

/// How alike a drawn picture is to what was seen: SSIM and PSNR (dB), of the pixels whose depth was
/// measured; none if there are none, or no window of SSIM.
///
/// What no depth is known of (holes, sky) can't be drawn: there the drawn picture stands in for what was
/// seen, and neither the windows in whose middle it lies count, nor its pixels.
pub fn alike(
    size: [u32; 2],
    seen: &[[f32; 3]],
    drawn: &[[f32; 3]],
    depths_m: &[f32],
) -> Option<(f64, f64)> {
    if depths_m.len() != seen.len() || drawn.len() != seen.len() {
        return None;
    }
    let mut filled = seen.to_vec();
    for (i, _) in depths_m.iter().enumerate().filter(|(_, depth_m)| depth_m.is_nan()) {
        filled[i] = drawn[i];
    }
    let ssim = ssim_where(size, &filled, drawn, |pixel| !depths_m[pixel].is_nan())?;
    let is_measured = |(_, depth_m): &(&[f32; 3], &f32)| !depth_m.is_nan();
    let measured = |picture: &[[f32; 3]]| -> Vec<[f32; 3]> {
        picture.iter().zip(depths_m).filter(is_measured).map(|(color, _)| *color).collect()
    };
    Some((ssim, psnr(&measured(seen), &measured(drawn))?))
}

/// Structural similarity (SSIM; Wang et al. 2004): the mean over all windows and channels, at most 1.
///
/// Of two pictures of `size` (width, height) with red, green and blue from 0 to 1, in Gaussian windows
/// of 11×11 pixels with deviation 1.5, those that lie in the picture; none if there is no such window.
/// The same as `skimage.metrics.structural_similarity` with `gaussian_weights=True`, `sigma=1.5`,
/// `use_sample_covariance=False`, `data_range=1`.
pub fn ssim(size: [u32; 2], a: &[[f32; 3]], b: &[[f32; 3]]) -> Option<f64> {
    ssim_where(size, a, b, |_| true)
}

/// The same of the windows in whose middle lies a pixel that counts.
fn ssim_where(
    [width, height]: [u32; 2],
    a: &[[f32; 3]],
    b: &[[f32; 3]],
    counts: impl Fn(usize) -> bool,
) -> Option<f64> {
    let [width, height] = [width, height].map(|n| n as usize);
    let fits = a.len() == width * height && b.len() == a.len();
    if !fits || width.min(height) < 2 * RADIUS + 1 {
        return None;
    }
    let inner = width - 2 * RADIUS;
    let middle = |i: usize| (i / inner + RADIUS) * width + i % inner + RADIUS;
    let (mut sum, mut n) = (0.0, 0);
    for channel in 0..3 {
        let mean = |of: &dyn Fn(f64, f64) -> f64| {
            let both = a.iter().zip(b).map(|(a, b)| [a, b].map(|c| f64::from(c[channel])));
            smooth(&both.map(|[a, b]| of(a, b)).collect::<Vec<_>>(), width)
        };
        let (of_a, of_b) = (mean(&|a, _| a), mean(&|_, b| b));
        let (of_aa, of_bb, of_ab) = (mean(&|a, _| a * a), mean(&|_, b| b * b), mean(&|a, b| a * b));
        for i in (0..of_a.len()).filter(|&i| counts(middle(i))) {
            let (x, y) = (of_a[i], of_b[i]);
            let (var_x, var_y, covar) = (of_aa[i] - x * x, of_bb[i] - y * y, of_ab[i] - x * y);
            let ratio = (2.0 * x * y + C1) * (2.0 * covar + C2);
            sum += ratio / ((x * x + y * y + C1) * (var_x + var_y + C2));
            n += 1;
        }
    }
    (n > 0).then(|| sum / f64::from(n))
}

/// Peak signal-to-noise ratio (dB) of two pictures with colours from 0 to 1; infinite if they are the
/// same, none if they are of different sizes.
pub fn psnr(a: &[[f32; 3]], b: &[[f32; 3]]) -> Option<f64> {
    let (a, b) = (a.as_flattened(), b.as_flattened());
    if a.len() != b.len() || a.is_empty() {
        return None;
    }
    let squares = a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2));
    Some(-10.0 * (squares.sum::<f64>() / a.len() as f64).log10())
}

/// Gaussian means of the windows that lie in the picture.
fn smooth(x: &[f64], width: usize) -> Vec<f64> {
    let weights: [f64; 2 * RADIUS + 1] =
        std::array::from_fn(|i| (-0.5 * ((i as f64 - RADIUS as f64) / SIGMA).powi(2)).exp());
    let total: f64 = weights.iter().sum();
    let weights = weights.map(|weight| weight / total);
    let mean = |values: &mut dyn Iterator<Item = f64>| -> f64 {
        weights.iter().zip(values).map(|(weight, value)| weight * value).sum()
    };
    let inner = width - 2 * RADIUS;
    let mut rows = Vec::with_capacity(x.len());
    for row in x.chunks_exact(width) {
        rows.extend(row.windows(weights.len()).map(|window| mean(&mut window.iter().copied())));
    }
    let n_out = rows.len() - 2 * RADIUS * inner;
    (0..n_out).map(|i| mean(&mut rows[i..].iter().step_by(inner).copied())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Golden;

    #[test]
    fn equals_scikit_image() {
        let golden = Golden::read("similarity");
        let size: [u32; 2] = golden.setting("size");
        let truth = golden.vectors("truth");
        for (i, (want_ssim, want_psnr)) in
            golden.f64("ssim").into_iter().zip(golden.f64("psnr")).enumerate()
        {
            let picture = golden.vectors(&format!("picture.{i}"));
            let (ssim, psnr) = (ssim(size, &truth, &picture).unwrap(), psnr(&truth, &picture));
            assert!((ssim - want_ssim).abs() < 1e-9, "picture {i}: SSIM {ssim}, not {want_ssim}");
            assert!((psnr.unwrap() - want_psnr).abs() < 1e-7, "picture {i}: PSNR {psnr:?}");
        }
        assert_eq!(ssim(size, &truth, &truth), Some(1.0));
        assert_eq!(psnr(&truth, &truth), Some(f64::INFINITY));
    }

    #[test]
    fn what_was_not_measured_does_not_count() {
        let golden = Golden::read("similarity");
        let size: [u32; 2] = golden.setting("size");
        let (truth, mut picture) = (golden.vectors("truth"), golden.vectors("picture.1"));
        let all = vec![1.0; truth.len()];
        let whole = alike(size, &truth, &picture, &all).unwrap();
        let want = (ssim(size, &truth, &picture).unwrap(), psnr(&truth, &picture).unwrap());
        assert_eq!(whole, want);
        // The right half is not measured: whatever is drawn there is left out.
        let half = |i: usize| (i % size[0] as usize) < size[0] as usize / 2;
        let depths: Vec<f32> =
            (0..truth.len()).map(|i| if half(i) { 1.0 } else { f32::NAN }).collect();
        let before = alike(size, &truth, &picture, &depths).unwrap();
        assert_ne!(before, whole);
        let last = picture.len() - 1;
        picture[last] = [9.0; 3];
        assert_eq!(alike(size, &truth, &picture, &depths), Some(before));
        picture[0] = [9.0; 3];
        assert_ne!(alike(size, &truth, &picture, &depths), Some(before));
        assert_eq!(alike(size, &truth, &picture, &vec![f32::NAN; truth.len()]), None);
        assert_eq!(alike(size, &truth, &picture, &depths[1..]), None);
    }

    #[test]
    fn pictures_without_a_window_have_none() {
        let small = vec![[0.5; 3]; 10 * 40];
        assert_eq!(ssim([40, 10], &small, &small), None);
        assert_eq!(ssim([40, 11], &small, &small), None, "not of that size");
        assert_eq!(psnr(&small, &small[1..]), None);
        assert_eq!(psnr(&[], &[]), None);
    }
}
