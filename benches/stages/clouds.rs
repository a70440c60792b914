//! From a message's bytes to points, and from points to particles.

#[path = "../../src/message/encode.rs"]
#[allow(dead_code)]
mod encode;

use std::collections::HashSet;

use anyhow::ensure;
use criterion::{BenchmarkId, Criterion};
use encode::CdrWriter;
use forecloud::message::PointCloud2;
use forecloud::vision::cloud::Workspace;
use forecloud::vision::particles::{Particles, morton};

use super::support::Demo;
use super::{SIZES, set_size};

/// Bytes of a point: x, y, z, a gap, the colour, a gap, as drivers of depth cameras send them.
const POINT_STEP: usize = 32;
const RGB_OFFSET: usize = 16;

/// A `PointCloud2` of the demo's points: they come back as they were.
pub fn decode(criterion: &mut Criterion, demo: &Demo) -> anyhow::Result<()> {
    let mut group = criterion.benchmark_group("decode");
    for n in SIZES {
        let (positions, colors) = (&demo.cloud.positions[..n], &demo.cloud.colors[..n]);
        let message = message(positions, colors);
        let (mut got_positions, mut got_colors) = (Vec::new(), Vec::new());
        let mut run = || -> forecloud::Result<()> {
            got_positions.clear();
            got_colors.clear();
            PointCloud2::decode(&message)?.for_each(|_, position, color| {
                got_positions.push(position);
                got_colors.push(color);
            });
            Ok(())
        };
        run()?;
        set_size(&mut group, n);
        group.bench_function(BenchmarkId::from_parameter(n), |bencher| bencher.iter(&mut run));
        ensure!(got_positions == positions && got_colors == colors, "decoded to other points");
    }
    group.finish();
    Ok(())
}

fn message(positions: &[[f32; 3]], colors: &[[u8; 3]]) -> Vec<u8> {
    let n = positions.len();
    let mut data = vec![0; n * POINT_STEP];
    for ((point, position), [r, g, b]) in
        data.chunks_exact_mut(POINT_STEP).zip(positions).zip(colors)
    {
        for (bytes, x) in point.chunks_exact_mut(4).zip(position) {
            bytes.copy_from_slice(&x.to_le_bytes());
        }
        point[RGB_OFFSET..RGB_OFFSET + 4].copy_from_slice(&[*b, *g, *r, 0]);
    }
    let fields = [("x", 0), ("y", 4), ("z", 8), ("rgb", RGB_OFFSET)];
    let writer = CdrWriter::new(false).header(1, 2, "optical").u32(1).u32(n as u32);
    let writer = fields.iter().fold(writer.u32(4), |writer, &(name, offset)| {
        writer.string(name).u32(offset as u32).u8(7).u32(1)
    });
    let writer = writer.u8(0).u32(POINT_STEP as u32).u32((n * POINT_STEP) as u32);
    writer.u8s(&data).u8(1).finish()
}

/// The draw of `n` particles from the demo's whole cloud: distinct points of it, in Morton order.
pub fn particles(criterion: &mut Criterion, demo: &Demo) -> anyhow::Result<()> {
    let workspace = Workspace::default();
    let mut group = criterion.benchmark_group("particles");
    for n in SIZES {
        let mut particles = Particles::default();
        let mut run = || particles.sample(&demo.cloud, n, 1, 0, &workspace);
        run();
        set_size(&mut group, n);
        group.bench_function(BenchmarkId::from_parameter(n), |bencher| bencher.iter(&mut run));
        let codes = particles.positions.iter().map(|&p| morton(p, &workspace));
        ensure!(particles.len() == n && codes.is_sorted(), "no {n} particles in Morton order");
        let distinct: HashSet<u32> = particles.sources.iter().copied().collect();
        ensure!(distinct.len() == n, "drawn twice");
        let points: HashSet<(u32, [u32; 3])> =
            demo.cloud.sources.iter().copied().zip(demo.cloud.positions.iter().map(bits)).collect();
        let drawn = particles.sources.iter().copied().zip(particles.positions.iter().map(bits));
        ensure!(drawn.into_iter().all(|point| points.contains(&point)), "no point of the cloud");
    }
    group.finish();
    Ok(())
}

fn bits(position: &[f32; 3]) -> [u32; 3] {
    position.map(f32::to_bits)
}
