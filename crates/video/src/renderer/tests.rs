//! The renderer against PyTorch, against its plain version in f64, and by what pictures must be.

use super::*;
use crate::VideoConfig;
use crate::check::*;
use crate::config::N_KERNELS;
use forecloud::base::random::{draw, uniform};

/// The renderer in f64, of places that were found: colour and depth of each ray, `[rays, 4]`.
mod plain {
    use super::*;

    pub fn render(
        layout: &VideoLayout,
        weights: &[f64],
        positions: &[f64],
        features: &[f64],
        blocks: &[Block],
    ) -> Vec<f64> {
        let seen = |block: &Block| -> Vec<f64> {
            let spans = block.starts.windows(2);
            let see = |span: &[usize]| {
                let samples = &block.samples[span[0]..span[1]];
                let outs = samples.iter().map(|s| network(layout, weights, positions, features, s));
                composite(&outs.collect::<Vec<_>>(), samples, f64::from(layout.config.far_m))
            };
            spans.flat_map(see).collect()
        };
        blocks.iter().flat_map(seen).collect()
    }

    fn network(
        layout: &VideoLayout,
        weights: &[f64],
        positions: &[f64],
        features: &[f64],
        sample: &Sample,
    ) -> Vec<f64> {
        let config = &layout.config;
        let n = config.n_features;
        let distance = |i: usize| {
            let way = (0..3).map(|a| positions[3 * i + a] - f64::from(sample.place[a]));
            (way.map(|x| x * x).sum::<f64>() + 1e-8).sqrt()
        };
        let (mut x, mut sums) = (Vec::new(), Vec::new());
        for b in 0..N_KERNELS {
            let (radius, width) = (f64::from(config.radii_m[b]), f64::from(config.bandwidths_m[b]));
            let weigh = |i| (-0.5 * ((distance(i) - radius) / width).powi(2)).exp();
            let sum: f64 = sample.neighbors().map(weigh).sum();
            let total =
                |c: usize| sample.neighbors().map(|i| weigh(i) * features[i * n + c]).sum::<f64>();
            x.extend((0..n).map(|c| total(c) / (sum + 1e-2)));
            sums.push(0.25 * sum);
        }
        x.extend(sums);
        for (i, layer) in layout.dense.iter().enumerate() {
            let (weight, bias) = (&weights[layer.weight.range()], &weights[layer.bias.range()]);
            x = crate::plain::linear(&x, weight, bias);
            if i < 2 {
                x.iter_mut().for_each(|x| *x = x.max(0.0));
            }
        }
        x
    }

    fn composite(outs: &[Vec<f64>], samples: &[Sample], far_m: f64) -> [f64; 4] {
        let (mut light, mut seen) = (1.0, [0.0; 4]);
        for (out, sample) in outs.iter().zip(samples) {
            let left = light * (-(1.0 + out[0].exp()).ln()).exp();
            for c in 0..3 {
                seen[c] += (light - left) / (1.0 + (-out[c + 1]).exp());
            }
            seen[3] += (light - left) * f64::from(sample.depth_m);
            light = left;
        }
        [seen[0] + light, seen[1] + light, seen[2] + light, seen[3] + light * far_m]
    }
}

fn flat(rays: &[Rendered]) -> Vec<f32> {
    rays.iter().flat_map(|ray| [ray.color[0], ray.color[1], ray.color[2], ray.depth_m]).collect()
}

fn ray_gradients(numbers: &[f32]) -> Vec<RayGradient> {
    let gradient = |d: &[f32]| RayGradient { color: [d[0], d[1], d[2]], depth: d[3] };
    numbers.chunks_exact(4).map(gradient).collect()
}

fn rays(n: u64) -> Vec<Ray> {
    let u = |i, stream| uniform(draw(7, 0, i, stream));
    let ray = |i| Ray {
        origin: [0.05, -0.02, 0.5],
        direction: [0.2 * u(i, 0) - 0.15, 0.2 * u(i, 1) - 0.05, -1.0],
        shift: u(i, 2),
    };
    (0..n).map(ray).collect()
}

/// A wavy surface.
fn surface(n: u64) -> Vec<Vec3> {
    let u = |i, stream| 0.16 * uniform(draw(9, 0, i, stream)) - 0.08;
    (0..n).map(|i| [u(i, 0), u(i, 1), 0.01 * (60.0 * u(i, 0)).sin() + 0.1 * u(i, 2)]).collect()
}

fn small() -> (VideoLayout, Vec<f32>) {
    let config = VideoConfig {
        n_features: 3,
        channels: [1, 1, 1],
        hidden: 7,
        max_samples: 20,
        ..VideoConfig::default()
    };
    let layout = VideoLayout::new(config).unwrap();
    let weights = numbers(layout.n_params(), 3).iter().map(|w| 0.6 * w).collect();
    (layout, weights)
}

#[test]
fn equals_its_plain_version_with_gradients() {
    let (layout, weights) = small();
    let (positions, rays) = (surface(150), rays(21));
    let features = numbers(positions.len() * 3, 5);
    let scene = Scene::new(&layout, &positions, &features).unwrap();
    let renderer = Renderer::new(&layout, &weights);
    let traced = renderer.trace(&scene, &rays);
    let got: Vec<Rendered> = traced.rays().copied().collect();
    let (w, p, f) = (f64s(&weights), f64s(positions.as_flattened()), f64s(&features));
    let blocks = &traced.blocks;
    let n_samples: usize = blocks.iter().map(|block| block.samples.len()).sum();
    assert!(n_samples > 100, "{n_samples} places");
    assert_close(&flat(&got), &plain::render(&layout, &w, &p, &f, blocks), 1e-5);

    let d = numbers(4 * rays.len(), 6);
    let (mut d_weights, mut d_features) = (vec![0.0; weights.len()], vec![0.0; features.len()]);
    let mut d_positions = vec![[0.0; 3]; positions.len()];
    let mut into = Gradients {
        weights: Some(&mut d_weights),
        features: &mut d_features,
        positions: &mut d_positions,
    };
    renderer.backward(&scene, &traced, &ray_gradients(&d), &mut into);
    let render = |w: &[f64], p: &[f64], f: &[f64]| plain::render(&layout, w, p, f, blocks);
    assert_gradient_of("weights", &d_weights, &weights, &d, |w| render(w, &p, &f));
    assert_gradient_of("features", &d_features, &features, &d, |f| render(&w, &p, f));
    let (d_positions, positions) = (d_positions.as_flattened(), positions.as_flattened());
    assert_gradient_of("positions", d_positions, positions, &d, |p| render(&w, p, &f));
    assert!(layout.of_renderer().start > 0 && d_weights[0] == 0.0, "the encoder's stay");
}

#[test]
fn equals_pytorch() {
    let golden = Golden::read("renderer");
    let config =
        VideoConfig { n_features: 5, channels: [1, 1, 1], hidden: 12, ..VideoConfig::default() };
    let layout = VideoLayout::new(config).unwrap();
    let mut weights = vec![0.0; layout.n_params()];
    let of_renderer =
        || layout.tensors.iter().filter(|tensor| tensor.name.starts_with("renderer."));
    for tensor in of_renderer() {
        tensor.span.of_mut(&mut weights).copy_from_slice(&golden.f32(&tensor.name));
    }
    let (positions, features) = (golden.vectors("positions"), golden.f32("features"));
    let from = golden.vectors("origins").into_iter().zip(golden.vectors("directions"));
    let with_shift = from.zip(golden.f32("shifts"));
    let rays: Vec<Ray> =
        with_shift.map(|((origin, direction), shift)| Ray { origin, direction, shift }).collect();
    let scene = Scene::new(&layout, &positions, &features).unwrap();
    let renderer = Renderer::new(&layout, &weights);
    let traced = renderer.trace(&scene, &rays);
    let got: Vec<Rendered> = traced.rays().copied().collect();
    assert_close(&flat(&got), &golden.f64("seen"), 2e-5);

    let (mut d_weights, mut d_features) = (vec![0.0; weights.len()], vec![0.0; features.len()]);
    let mut d_positions = vec![[0.0; 3]; positions.len()];
    let mut into = Gradients {
        weights: Some(&mut d_weights),
        features: &mut d_features,
        positions: &mut d_positions,
    };
    renderer.backward(&scene, &traced, &ray_gradients(&golden.f32("d_seen")), &mut into);
    assert_close_of("features", &d_features, &golden.f64("grad.features"), 5e-5);
    let d_positions = d_positions.as_flattened();
    assert_close_of("positions", d_positions, &golden.f64("grad.positions"), 5e-5);
    for tensor in of_renderer() {
        let want = golden.f64(&format!("grad.{}", tensor.name));
        assert_close_of(&tensor.name, tensor.span.of(&d_weights), &want, 5e-5);
    }
}

#[test]
fn pictures_are_what_is_traced_on_any_number_of_threads() {
    let (layout, mut weights) = small();
    // Dense enough to hide what lies behind.
    layout.dense[2].bias.of_mut(&mut weights)[0] = 3.0;
    let (positions, rays) = (surface(150), rays(150));
    let features = numbers(positions.len() * 3, 5);
    let scene = Scene::new(&layout, &positions, &features).unwrap();
    let renderer = Renderer::new(&layout, &weights);
    let traced: Vec<Rendered> = renderer.trace(&scene, &rays).rays().copied().collect();
    let on = |n_threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
        pool.install(|| renderer.draw(&scene, &rays))
    };
    let drawn = on(1);
    assert_eq!(drawn, on(3));
    for (drawn, traced) in drawn.iter().zip(&traced) {
        let off = drawn.color.iter().zip(&traced.color).map(|(a, b)| (a - b).abs());
        let off = off.fold(0.0, f32::max);
        assert!(off < 0.1 / 25.5 && (drawn.depth_m - traced.depth_m).abs() < 5e-3, "{off}");
    }
}

#[test]
fn gradients_are_the_same_on_any_number_of_threads() {
    let (layout, weights) = small();
    let (positions, rays) = (surface(150), rays(100));
    let features = numbers(positions.len() * 3, 5);
    let d = ray_gradients(&numbers(4 * rays.len(), 6));
    let gradients = |n_threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
        pool.install(|| {
            let scene = Scene::new(&layout, &positions, &features).unwrap();
            let renderer = Renderer::new(&layout, &weights);
            let traced = renderer.trace(&scene, &rays);
            let (mut weights, mut features) = (vec![0.0; weights.len()], vec![0.0; features.len()]);
            let mut positions = vec![[0.0; 3]; positions.len()];
            let mut into = Gradients {
                weights: Some(&mut weights),
                features: &mut features,
                positions: &mut positions,
            };
            renderer.backward(&scene, &traced, &d, &mut into);
            (weights, features, positions)
        })
    };
    assert!(gradients(1) == gradients(3));
}

#[test]
fn nothing_is_white_and_far() {
    let (layout, weights) = small();
    let scene = Scene::new(&layout, &[], &[]).unwrap();
    let seen = Renderer::new(&layout, &weights).draw(&scene, &rays(3));
    assert_eq!(seen, [Rendered { color: [1.0; 3], depth_m: layout.config.far_m }; 3]);
    assert!(Scene::new(&layout, &[[0.0; 3]], &[0.0; 2]).is_err(), "features are missing");
}
