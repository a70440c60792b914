use super::*;
use crate::check::*;
use crate::plain::layer_norm;
use crate::plain::linear;
use crate::plain::masked_attention;
use crate::weights::EncoderLayout;
use crate::{Encoder, VideoConfig, of_tiny_push};
use forecloud_lab::masks::{Mask, MaskKind};

fn kind(name: &str) -> PatchMask {
    PatchMask::try_from(name.to_owned()).unwrap()
}

fn small(mask: PatchMask) -> VitConfig {
    let sizes = VitConfig { patch: 4, width: 8, n_heads: 2, n_blocks: 1, ..VitConfig::default() };
    VitConfig { mlp_ratio: 2, n_hops: 2, n_walks: 3, mask, ..sizes }
}

fn layout_of(vit: VitConfig) -> VideoLayout {
    let encoder = EncoderKind::Vit(vit);
    let config =
        VideoConfig { n_features: 2, encoder, picture: [16, 16], ..VideoConfig::default() };
    VideoLayout::new(config).unwrap()
}

fn vit_of(layout: &VideoLayout) -> &VitLayout {
    let EncoderLayout::Vit(vit) = &layout.encoder else { panic!("the transformer") };
    vit
}

/// Initial weights, with numbers where those are 0 or 1.
fn weights_of(layout: &VideoLayout) -> Vec<f32> {
    let mut weights = layout.initial_weights(3);
    for (w, x) in weights.iter_mut().zip(numbers(layout.n_params(), 4)) {
        *w = if *w == 0.0 {
            0.3 * x
        } else if *w == 1.0 {
            1.0 + 0.2 * x
        } else {
            *w
        };
    }
    weights
}

/// One camera's picture, and the other's as what it saw before.
fn frames() -> Vec<Picture> {
    let pictures = of_tiny_push([13, 13]);
    assert_eq!(pictures[0].size, pictures[1].size);
    assert!(pictures[0].size.iter().any(|n| !n.is_multiple_of(4)), "patches over the edge");
    vec![pictures[1].clone(), pictures[0].clone()]
}

fn patches_of(vit: &VitConfig, size: [u32; 2]) -> Patches {
    Patches { size: size.map(|n| n as usize), grid: vit.grid(size), side: vit.patch }
}

/// The dense matrix that the mask multiplies by.
fn matrix(mask: &dyn Mask, params: &[f32]) -> Vec<f64> {
    let n = mask.n_nodes();
    let identity: Vec<f32> = (0..n * n).map(|at| f32::from(u8::from(at / n == at % n))).collect();
    let mut y = vec![0.0; n * n];
    mask.apply(params, &identity, &mut y);
    f64s(&y)
}

/// Dense masks of one frame by the mask's parameters, in f64.
fn dense_of(vit: &VitConfig, patches: &Patches, depths_m: &[f32]) -> DenseMask {
    let (n, columns, hops) = (patches.len(), patches.grid[0], vit.n_hops);
    let softplus = |x: f64| x.exp().ln_1p();
    match vit.mask {
        PatchMask::None => Box::new(move |_| vec![1.0; n * n]),
        PatchMask::Toeplitz => Box::new(move |params| {
            let entry = |at: usize| {
                let offset = |of: fn(usize, usize) -> usize| {
                    (of(at / n, columns) + hops).checked_sub(of(at % n, columns))
                };
                let (dy, dx) = (offset(|i, w| i / w), offset(|i, w| i % w));
                let side = 2 * hops + 1;
                match (dy, dx) {
                    (Some(dy), Some(dx)) if dy < side && dx < side => {
                        softplus(params[dy * side + dx])
                    }
                    _ => 0.0,
                }
            };
            (0..n * n).map(entry).collect()
        }),
        // Of weights f of walks' lengths: linear in them, or, with walks on both sides, a square.
        PatchMask::Graph(_) => {
            let masks = Masks::new(vit, patches, &[depths_m.to_vec()], &Frozen::default()).unwrap();
            // Softplus of these: 0 and 1.
            let of = |ones: &[usize]| {
                let f = |t| if ones.contains(&t) { 0.541_324_85 } else { -60.0 };
                matrix(&masks.space, &(0..=hops).map(f).collect::<Vec<f32>>())
            };
            let is_square = vit.mask.name() == "symmetric_grf";
            let one: Vec<Vec<f64>> = (0..=hops).map(|t| of(&[t])).collect();
            let pairs = (0..=hops).flat_map(|s| (0..s).map(move |t| (s, t)));
            let two: Vec<_> = pairs.map(|(s, t)| (s, t, of(&[s, t]))).collect();
            Box::new(move |params| {
                let f: Vec<f64> = params.iter().map(|&x| softplus(x)).collect();
                let mut sum = vec![0.0; n * n];
                let mut add = |a: f64, m: &[f64]| {
                    sum.iter_mut().zip(m).for_each(|(sum, m)| *sum += a * m);
                };
                for (t, m) in one.iter().enumerate() {
                    add(if is_square { f[t] * f[t] } else { f[t] }, m);
                }
                for (s, t, m) in two.iter().filter(|_| is_square) {
                    add(f[*s] * f[*t], m);
                    add(-f[*s] * f[*t], &one[*s]);
                    add(-f[*s] * f[*t], &one[*t]);
                }
                sum
            })
        }
    }
}

type DenseMask = Box<dyn Fn(&[f64]) -> Vec<f64>>;

/// The whole network in f64, its attention dense under the frames' `masks`.
fn plain(
    layout: &VideoLayout,
    weights: &[f64],
    frames: &[Picture],
    masks: &[DenseMask],
) -> Vec<f64> {
    let vit = vit_of(layout);
    let (config, n_features) = (vit.config, layout.config.n_features);
    let patches = patches_of(&config, frames[0].size);
    let (n, d, side) = (patches.len(), config.width, config.patch);
    let of = |span: Span| &weights[span.range()];
    let dense = |x: &[f64], a: Affine| linear(x, of(a.weight), of(a.bias));
    let normed = |x: &[f64], a: Affine| layer_norm(x, of(a.weight), of(a.bias));
    let relu = |x: &mut f64| *x = x.max(0.0);
    let mut x = Vec::new();
    for (frame, picture) in frames.iter().enumerate() {
        let numbers = f64s(&pixels(picture, layout.config.far_m));
        for i in 0..n {
            let mut row = vec![0.0; side * side * CHANNELS];
            let [left, top] = [i % patches.grid[0] * side, i / patches.grid[0] * side];
            for (at, cell) in row.chunks_exact_mut(CHANNELS).enumerate() {
                let (u, v) = (left + at % side, top + at / side);
                if u < patches.size[0] && v < patches.size[1] {
                    let pixel = v * patches.size[0] + u;
                    cell.copy_from_slice(&numbers[pixel * CHANNELS..][..CHANNELS]);
                }
            }
            let mut token = dense(&row, vit.embed);
            let age = vit.ages.map(|ages| (ages, frames.len() - 1 - frame));
            let places = [(vit.places[0], left / side), (vit.places[1], top / side)];
            for (span, at) in places.into_iter().chain(age) {
                token.iter_mut().zip(&of(span)[at * d..]).for_each(|(x, p)| *x += p);
            }
            x.extend(token);
        }
    }
    for (index, block) in vit.blocks.iter().enumerate() {
        let params = block.mask.map_or(&[][..], of);
        let parts: Vec<Vec<f64>> = masks.iter().map(|mask| mask(params)).collect();
        let (f, last) = (frames.len(), parts.len() - 1);
        let entry = |at: usize| {
            let ((s, p), (t, q)) =
                ((at / (f * n) / n, at / (f * n) % n), (at % (f * n) / n, at % n));
            match index < config.n_blocks {
                true if s == t => parts[s][p * n + q],
                false if s >= t => parts[last][p * n + q],
                _ => 0.0,
            }
        };
        let mask: Vec<f64> = (0..(f * n).pow(2)).map(entry).collect();
        let mut rows = dense(&normed(&x, block.norm), block.qkv);
        rows.chunks_exact_mut(3 * d).for_each(|row| row[..2 * d].iter_mut().for_each(relu));
        let attended = masked_attention(&mask, &rows, Heads::new(d, config.n_heads));
        x.iter_mut().zip(dense(&attended, block.out)).for_each(|(x, y)| *x += y);
        let mut hidden = dense(&normed(&x, block.mlp_norm), block.up);
        hidden.iter_mut().for_each(relu);
        x.iter_mut().zip(dense(&hidden, block.down)).for_each(|(x, y)| *x += y);
    }
    let now = (frames.len() - 1) * n * d;
    let of_patches = dense(&normed(&x[now..], vit.norm), vit.head);
    let numbers = f64s(&pixels(&frames[frames.len() - 1], layout.config.far_m));
    let mut features = dense(&numbers, vit.skip);
    for (pixel, features) in features.chunks_exact_mut(n_features).enumerate() {
        let (u, v) = (pixel % patches.size[0], pixel / patches.size[0]);
        let patch = v / side * patches.grid[0] + u / side;
        let at = (patch * side * side + v % side * side + u % side) * n_features;
        features.iter_mut().zip(&of_patches[at..]).for_each(|(x, y)| *x += y);
    }
    features
}

#[test]
fn features_and_gradients_are_those_of_dense_attention() {
    let frames = frames();
    let series = VitConfig { n_past: 1, ..small(kind("series")) };
    let variants = [
        small(PatchMask::None),
        small(PatchMask::Toeplitz),
        small(kind("symmetric_grf")),
        VitConfig { cut_m: Some(0.05), ..small(kind("symmetric_grf")) },
        VitConfig { n_past: 2, n_time_blocks: 2, ..small(PatchMask::None) },
        VitConfig { n_past: 1, ..small(PatchMask::Toeplitz) },
        VitConfig { cut_m: Some(0.1), ..series },
    ];
    for vit in variants {
        let name = format!("{} past {} cut {:?}", vit.mask.name(), vit.n_past, vit.cut_m);
        let layout = layout_of(vit);
        let weights = weights_of(&layout);
        let seen = if vit.n_past > 0 { &frames[..] } else { &frames[1..] };
        let encoder = Encoder::new(&layout, &weights);
        let encoded = encoder.encode(&frames[1], &[&frames[0]]).unwrap();
        let patches = patches_of(&vit, frames[1].size);
        let mask = |picture: &Picture| dense_of(&vit, &patches, &patches.depths_m(picture));
        let masks: Vec<DenseMask> = seen.iter().map(mask).collect();
        let start = f64s(&weights);
        let want = plain(&layout, &start, seen, &masks);
        assert_close_of(&name, encoded.features(), &want, 2e-5);
        assert_eq!(encoded.row_of([2, 1]), frames[1].size[0] as usize + 2);

        let d_features = numbers(want.len(), 9);
        let mut gradient = vec![0.0; weights.len()];
        encoder.backward(&encoded, &d_features, &mut gradient);
        let loss = |at: usize, step: f64| -> f64 {
            let mut weights = start.clone();
            weights[at] += step;
            let features = plain(&layout, &weights, seen, &masks);
            features.iter().zip(&d_features).map(|(y, &d)| y * f64::from(d)).sum()
        };
        let n = layout.of_renderer().start;
        let want: Vec<f64> = (0..n).map(|at| (loss(at, 1e-6) - loss(at, -1e-6)) / 2e-6).collect();
        let largest = |x: &[f64]| x.iter().fold(0.0f64, |most, x| most.max(x.abs()));
        for tensor in layout.tensors.iter().filter(|t| t.name.starts_with("encoder.")) {
            let (got, want_here) = (tensor.span.of(&gradient), &want[tensor.span.range()]);
            // Those of a mask nearly cancel: its scale changes nothing.
            let slack = 3e-5 * largest(want_here) + 2e-6 * largest(&want);
            for (i, (got, want)) in got.iter().zip(want_here).enumerate() {
                let error = (f64::from(*got) - want).abs();
                let what = &tensor.name;
                assert!(error <= slack, "{name}: {what} {i}: {got}, not {want} (within {slack})");
            }
            assert!(largest(want_here) > 0.0, "{name}: {} is used", tensor.name);
        }
        let of_renderer = &gradient[layout.of_renderer()];
        assert!(of_renderer.iter().all(|&g| g == 0.0), "the renderer has no part in it");
    }
}

#[test]
fn it_is_the_same_on_any_number_of_threads() {
    let frames = frames();
    for mask in [PatchMask::None, PatchMask::Toeplitz, kind("symmetric_grf")] {
        let layout =
            layout_of(VitConfig { width: 32, n_heads: 2, n_past: 1, n_walks: 20, ..small(mask) });
        let weights = weights_of(&layout);
        let run = || {
            let encoder = Encoder::new(&layout, &weights);
            let encoded = encoder.encode(&frames[1], &[&frames[0]]).unwrap();
            let mut gradient = vec![0.0; weights.len()];
            let d_features = numbers(encoded.features().len(), 5);
            encoder.backward(&encoded, &d_features, &mut gradient);
            (encoded.features().to_vec(), gradient)
        };
        let on = |n| rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap().install(run);
        assert!(on(1) == on(4), "{}", mask.name());
    }
}

/// Whatever the mask, and where pictures are larger or smaller than those it was laid out for.
#[test]
fn every_mask_gives_finite_features_of_pictures_of_any_size() {
    for mask in PatchMask::all() {
        let config = VitConfig { n_hops: 3, ..small(mask) };
        let layout = layout_of(config);
        let weights = layout.initial_weights(1);
        for most in [[1, 1], [9, 7], [40, 30]] {
            for picture in of_tiny_push(most) {
                let encoded = Encoder::new(&layout, &weights).encode(&picture, &[]).unwrap();
                assert_eq!(encoded.features().len(), 2 * picture.n_pixels());
                assert!(encoded.features().iter().all(|x| x.is_finite()), "{}", mask.name());
            }
        }
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<VitConfig>(&text).unwrap(), config);
    }
}

#[test]
fn more_past_frames_than_it_was_made_for_are_left_out() {
    let frames = frames();
    let layout = layout_of(VitConfig { n_past: 1, ..small(PatchMask::None) });
    let weights = weights_of(&layout);
    let of = |past: &[&Picture]| {
        let encoder = Encoder::new(&layout, &weights);
        encoder.encode(&frames[1], past).unwrap().features().to_vec()
    };
    assert_eq!(of(&[&frames[1], &frames[0]]), of(&[&frames[0]]));
    assert_ne!(of(&[&frames[0]]), of(&[]));
}

/// Neighbours are those beside, above and below, and none over a depth step.
#[test]
fn walks_go_from_patch_to_patch_and_not_over_cut_edges() {
    let patches = Patches { size: [12, 8], grid: [3, 2], side: 4 };
    let depths_m = vec![1.0, 1.02, 1.5, 1.0, 1.03, f32::NAN];
    let of = |cut_m| {
        let vit = VitConfig { n_hops: 1, cut_m, ..small(kind("series")) };
        let masks = Masks::new(&vit, &patches, std::slice::from_ref(&depths_m), &Frozen::default());
        let mask = matrix(&masks.unwrap().space, &[-60.0, 0.0]);
        let heard = mask
            .chunks_exact(6)
            .map(|row| (0..6usize).filter(|&j| row[j] > 1e-9).collect::<Vec<_>>());
        heard.collect::<Vec<_>>()
    };
    let all = [vec![1, 3], vec![0, 2, 4], vec![1, 5], vec![0, 4], vec![1, 3, 5], vec![2, 4]];
    assert_eq!(of(None), all);
    let cut = [vec![1, 3], vec![0, 4], vec![], vec![0, 4], vec![1, 3], vec![]];
    assert_eq!(of(Some(0.05)), cut);
}

#[test]
fn masks_are_drawn_once_for_a_size() {
    let patches = Patches { size: [16, 16], grid: [4, 4], side: 4 };
    let vit = small(kind("symmetric_grf"));
    let frozen = Frozen::default();
    let once = |frozen: &Frozen| {
        let masks = Masks::new(&vit, &patches, &[vec![1.0; 16]], frozen).unwrap();
        matrix(&masks.space, &[0.1, 0.2, 0.3])
    };
    assert_eq!(once(&frozen), once(&frozen));
    assert_eq!(once(&frozen), once(&Frozen::default()), "the seed is fixed");
}

#[test]
fn settings_are_checked() {
    let wrong = |vit: VitConfig, key: &str| {
        let config = VideoConfig { encoder: EncoderKind::Vit(vit), ..VideoConfig::default() };
        let told = config.validate().unwrap_err().to_string();
        assert!(told.contains(&format!("video.vit.{key}")), "{told}");
    };
    let vit = VitConfig::default();
    wrong(VitConfig { patch: 1 << 40, ..vit }, "patch");
    wrong(VitConfig { patch: 2, ..vit }, "patch");
    wrong(VitConfig { width: 1 << 40, ..vit }, "width");
    wrong(VitConfig { n_heads: 7, ..vit }, "n_heads");
    wrong(VitConfig { n_heads: 0, ..vit }, "n_heads");
    wrong(VitConfig { n_walks: 1000, ..vit }, "n_walks");
    wrong(VitConfig { n_hops: 1 << 40, ..vit }, "n_hops");
    wrong(VitConfig { n_past: 9, ..vit }, "n_past");
    wrong(VitConfig { cut_m: Some(0.1), ..vit }, "cut_m");
    wrong(VitConfig { cut_m: Some(f32::NAN), ..vit }, "cut_m");
    forecloud_lab::register();
    let series = MaskKind::from_name("series").unwrap();
    let cut = VitConfig { cut_m: Some(0.1), mask: PatchMask::Graph(series), ..vit };
    let config = VideoConfig { encoder: EncoderKind::Vit(cut), ..VideoConfig::default() };
    assert!(config.validate().is_ok());
    assert!(PatchMask::try_from("grid".to_owned()).unwrap_err().contains("toeplitz"));
}
