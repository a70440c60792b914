use super::*;
use crate::base::random::draw;
use proptest::prelude::*;

/// Cloud of `n` points, `seed` telling clouds apart; colours and positions follow the source.
fn cloud(n: u32, seed: u64) -> Cloud {
    let workspace = Workspace::default();
    let unit = |i: u32, axis: u64| crate::base::random::uniform(draw(seed, 0, i.into(), axis));
    let sources: Vec<u32> = (0..n).map(|i| i * 7 + 3).collect();
    let position = |&i: &u32| {
        std::array::from_fn(|axis| {
            let (min, max) = (workspace.min[axis], workspace.max[axis]);
            min + (max - min) * unit(i, axis as u64)
        })
    };
    Cloud {
        positions: sources.iter().map(position).collect(),
        colors: sources.iter().map(|&i| [i as u8, (i >> 8) as u8, 255]).collect(),
        sources,
        ..Cloud::default()
    }
}

fn reversed(cloud: &Cloud) -> Cloud {
    let mut cloud = cloud.clone();
    cloud.positions.reverse();
    cloud.colors.reverse();
    cloud.sources.reverse();
    cloud
}

fn sample(cloud: &Cloud, n: usize, seed: u64, stamp_ns: i64) -> Particles {
    let mut particles = Particles::default();
    particles.sample(cloud, n, seed, stamp_ns, &Workspace::default());
    particles
}

#[test]
fn the_order_of_the_points_does_not_matter() {
    let cloud = cloud(1013, 1);
    for n in [1, 127, 1012, 1013, 5000] {
        let (a, b) = (sample(&cloud, n, 5, 9), sample(&reversed(&cloud), n, 5, 9));
        assert_eq!(a.sources, b.sources);
        assert_eq!(a.positions, b.positions);
        assert_eq!(a.colors, b.colors);
        assert_eq!(a.len(), n.min(1013));
    }
    assert_ne!(sample(&cloud, 127, 5, 9).sources, sample(&cloud, 127, 6, 9).sources);
    assert_ne!(sample(&cloud, 127, 5, 9).sources, sample(&cloud, 127, 5, 10).sources);
}

#[test]
fn particles_are_points_of_the_cloud_without_replacement() {
    let cloud = cloud(997, 2);
    let particles = sample(&cloud, 300, 0, 0);
    let mut seen = std::collections::HashSet::new();
    for (i, &source) in particles.sources.iter().enumerate() {
        assert!(seen.insert(source), "{source} twice");
        let point = ((source - 3) / 7) as usize;
        assert_eq!(particles.positions[i], cloud.positions[point]);
        assert_eq!(particles.colors[i], cloud.colors[point].map(|c| f32::from(c) / 255.0));
    }
}

#[test]
fn few_or_no_points() {
    assert!(sample(&Cloud::default(), 10, 0, 0).is_empty());
    assert!(sample(&cloud(10, 3), 0, 0, 0).is_empty());
    let mut all = sample(&cloud(10, 3), 99, 0, 0).sources;
    all.sort_unstable();
    assert_eq!(all, cloud(10, 3).sources);
}

/// Each point is drawn in a quarter of many samples: squared deviations as those of a binomial.
#[test]
fn sampling_is_uniform() {
    let (n_points, n, n_rounds) = (400u32, 100, 2000);
    let cloud = cloud(n_points, 4);
    let mut counts = vec![0u32; n_points as usize];
    let mut particles = Particles::default();
    for stamp_ns in 0..n_rounds {
        particles.sample(&cloud, n, 42, stamp_ns, &Workspace::default());
        particles.sources.iter().for_each(|&source| counts[((source - 3) / 7) as usize] += 1);
    }
    let p = n as f64 / f64::from(n_points);
    let (mean, variance) = (n_rounds as f64 * p, n_rounds as f64 * p * (1.0 - p));
    let chi_square: f64 =
        counts.iter().map(|&count| (f64::from(count) - mean).powi(2) / variance).sum();
    // Expected 400, standard deviation about 28.
    assert!((300.0..500.0).contains(&chi_square), "{chi_square}");
}

#[test]
fn particles_come_in_morton_order() {
    let workspace = Workspace::default();
    let particles = sample(&cloud(5003, 5), 2048, 1, 2);
    let keys: Vec<_> = particles
        .positions
        .iter()
        .zip(&particles.sources)
        .map(|(&position, &source)| (morton(position, &workspace), source))
        .collect();
    assert!(keys.is_sorted());
    assert!(keys[0].0 != keys[2047].0);
}

#[test]
fn no_allocation_after_the_first_sample() {
    let cloud = cloud(3001, 6);
    let mut particles = sample(&cloud, 1000, 0, 0);
    let place = |p: &Particles| (p.scratch.as_ptr(), p.positions.as_ptr(), p.sources.as_ptr());
    let before = place(&particles);
    particles.sample(&cloud, 1000, 0, 1, &Workspace::default());
    assert_eq!(before, place(&particles));
}

#[test]
fn morton_codes_by_hand() {
    let workspace = Workspace { min: [0.0; 3], max: [1024.0; 3] };
    assert_eq!(morton([1.5, 0.0, 0.0], &workspace), 1);
    assert_eq!(morton([0.0, 1.5, 0.0], &workspace), 2);
    assert_eq!(morton([0.0, 0.0, 1.5], &workspace), 4);
    assert_eq!(morton([3.0, 5.0, 6.0], &workspace), 0b110_101_011);
    assert_eq!(morton([1e9; 3], &workspace), (1 << 30) - 1);
    assert_eq!(morton([-1.0, f32::NAN, f32::NEG_INFINITY], &workspace), 0);
}

proptest! {
    /// Bit by bit, as the definition says.
    #[test]
    fn spreading_moves_each_bit(x in 0u32..1024) {
        let slow = (0..10).map(|bit| (x >> bit & 1) << (3 * bit)).sum::<u32>();
        prop_assert_eq!(spread(x), slow);
    }
}

fn thinned(seed: u64, stamp_ns: i64, support_stride: usize) -> Sampling {
    Sampling { seed, stamp_ns, workspace: Workspace::default(), support_stride }
}

/// 900 points of a table at z = 0.1 with noise, and 300 of things above it.
fn table() -> Cloud {
    let mut cloud = cloud(1200, 4);
    for (i, position) in cloud.positions.iter_mut().enumerate() {
        let u = crate::base::random::uniform(draw(6, 0, i as u64, 0));
        position[2] = if i < 900 { 0.1 + 0.006 * (u - 0.5) } else { 0.13 + 0.3 * u };
    }
    cloud
}

#[test]
fn one_in_a_stride_of_the_support_plane_takes_part() {
    let cloud = table();
    let count = |n: usize, seed: u64, stride: usize| {
        let mut particles = Particles::default();
        particles.sample_thinned(&cloud, n, &thinned(seed, 0, stride));
        assert_eq!(particles.len(), n.min(1200));
        particles.positions.iter().filter(|p| p[2] < 0.12).count()
    };
    // Of 900 about 112 take part beside 300: 27 in 100.
    let mean = |stride| (0..40).map(|seed| count(100, seed, stride)).sum::<usize>() as f32 / 40.0;
    assert!((mean(1) - 75.0).abs() < 3.0, "{}", mean(1));
    assert!((mean(8) - 27.2).abs() < 3.0, "{}", mean(8));
    // The others only where there are not enough, and then all that is needed of them.
    assert_eq!(count(1000, 1, 8), 700);
    assert_eq!(count(5000, 1, 8), 900);
    // What moves up with the table is seen alike.
    let (mut raised, mut particles) = (cloud.clone(), Particles::default());
    raised.positions.iter_mut().for_each(|p| p[2] += 0.07);
    particles.sample_thinned(&raised, 100, &thinned(3, 0, 8));
    assert_eq!(particles.positions.iter().filter(|p| p[2] < 0.19).count(), count(100, 3, 8));
    // It is told where the plane is, though a sparse sample would hide it.
    let support_m = particles.support_m.expect("a table");
    assert!((support_m - 0.17).abs() < 0.001, "{support_m}");
}

/// Only the likely keys are looked at, part by part: what is drawn is what sorting all keys gives, also
/// where nearly all is table and hardly anything takes part.
#[test]
fn the_draw_is_that_of_the_smallest_of_all_keys() {
    let mut cloud = cloud(50_000, 4);
    cloud.positions[..49_000].iter_mut().for_each(|p| p[2] = 0.1 + 0.01 * p[0].abs());
    for (n, stride) in [(0, 8), (1, 8), (1024, 8), (8192, 8), (9000, 1), (3000, 100), (45_000, 8)] {
        let sampling = thinned(2, 77, stride);
        let mut particles = Particles::default();
        particles.sample_thinned(&cloud, n, &sampling);
        let height = particles.support_m.expect("a table");
        let key = |i: usize| {
            let bits = draw(2, 77, u64::from(cloud.sources[i]), 0);
            let is_on_it = (cloud.positions[i][2] - height).abs() < SUPPORT_M;
            (is_on_it && !u64::from(bits as u32).is_multiple_of(stride as u64), bits >> 1)
        };
        let mut all: Vec<usize> = (0..50_000).collect();
        all.sort_by_key(|&i| key(i));
        let mut wanted: Vec<u32> = all[..n].iter().map(|&i| cloud.sources[i]).collect();
        wanted.sort_unstable();
        particles.sources.sort_unstable();
        assert!(particles.sources == wanted, "{n} of stride {stride}");
    }
}

/// The sampler draws once: both samples are as if each had been drawn alone.
#[test]
fn a_small_sample_is_part_of_a_large_one() {
    let (cloud, sampling) = (cloud(30_000, 9), thinned(3, 5, 8));
    let mut draw = Draw::default();
    draw.draw(&cloud, 5000, &sampling);
    for n in [0, 700, 5000] {
        let (mut of_draw, mut alone) = (Particles::default(), Particles::default());
        of_draw.take(&cloud, n, &draw, &sampling.workspace);
        alone.sample_thinned(&cloud, n, &sampling);
        assert_eq!((of_draw.positions, of_draw.sources), (alone.positions, alone.sources));
    }
}

#[test]
fn without_a_support_plane_all_take_part_alike() {
    let cloud = cloud(1013, 1);
    let mut particles = Particles::default();
    particles.sample_thinned(&cloud, 127, &thinned(5, 9, 8));
    assert_eq!(particles.sources, sample(&cloud, 127, 5, 9).sources);
    assert_eq!(particles.support_m, None);
}
