//! Particles from images on the device: points in the world frame, the support plane, and the draws,
//! the same as [`crate::vision::particles::CpuSampler`]'s to the bit.

use std::sync::Arc;

use super::Gpu;
use super::graph::Graph;
use super::kernels::{
    CloudBuffers, DRAW_ROUNDS, DrawBuffers, HEIGHT_BINS, Picture, SamplerSettings, number,
    sorted_len,
};
use super::memory::{Arena, Buffer, Pinned, Places};
use crate::engine::backend::RawSampler;
use crate::vision::camera::Camera;
use crate::vision::cloud::raw::{RawCamera, RawRays};
use crate::vision::particles::{MortonGrid, Particles, Sampling};
use crate::{Error, Result};

/// Most pixels of a frame: their numbers take the lower half of a sorting key.
const MAX_PIXELS: usize = 1 << 28;
/// Digits of a draw's counts.
const N_DIGITS: usize = 256;

/// Draws particles on one GPU; keeps all memory between calls.
#[derive(Debug)]
pub(crate) struct Sampler {
    sizes: Sizes,
    buffers: Buffers,
    graph: Option<Graph>,
    #[cfg(test)]
    pub n_captures: usize,
    images: Pinned<u8>,
    rows: Pinned<f32>,
    tables: Pinned<f32>,
    pictures: Pinned<Picture>,
    settings: Pinned<SamplerSettings>,
    results: Pinned<u32>,
    // Dropped behind the graph, which refers to it.
    arena: Arena,
    gpu: Arc<Gpu>,
}

/// What the memory and the captured graph are of.
#[derive(Debug, Clone, PartialEq, Default)]
struct Sizes {
    pictures: Vec<PictureSizes>,
    /// Points of each draw that there is room for.
    room: [usize; 2],
}

#[derive(Debug, Clone, PartialEq)]
struct PictureSizes {
    size: [u32; 2],
    depth_len: usize,
    color_len: Option<usize>,
    /// Calibration of a camera with distortion, whose rays stay on the device.
    distorted: Option<Camera>,
}

/// Places in device memory.
#[derive(Debug, Default, Clone)]
struct Buffers {
    pictures: Buffer<Picture>,
    settings: Buffer<SamplerSettings>,
    /// Of all cameras, one behind the other: depth, then colour.
    images: Buffer<u8>,
    /// Rays of the rows of cameras without distortion, by the pose.
    rows: Buffer<f32>,
    /// Rays of the pixels of those with it, which stay.
    tables: Buffer<f32>,
    positions: Buffer<f32>,
    colors: Buffer<u32>,
    keys: Buffer<u64>,
    /// Zero before each frame: the sum of heights (two words), then what begins at [`COUNTS`] to
    /// [`DIGITS`].
    zeroed: Buffer<u32>,
    ranks: [Buffer<u64>; 2],
    sorted: [Buffer<u64>; 2],
    /// What goes back: see [`Sizes::first_result`].
    results: Buffer<u32>,
}

impl Sizes {
    fn of(cameras: &[RawCamera], room: [usize; 2]) -> Self {
        let of = |camera: &RawCamera| PictureSizes {
            size: camera.size,
            depth_len: camera.depth.data.len(),
            color_len: camera.color.map(|(layout, _)| layout.data.len()),
            distorted: matches!(camera.rays, RawRays::Table { .. }).then_some(camera.camera),
        };
        Self { pictures: cameras.iter().map(of).collect(), room }
    }

    fn sum(&self, of: impl Fn(&PictureSizes) -> usize) -> usize {
        self.pictures.iter().map(of).fold(0, usize::saturating_add)
    }

    fn n_pixels(&self) -> usize {
        self.sum(PictureSizes::n_pixels)
    }

    /// First word of the results of a draw; of draw 2 the number of all words. Before them: how many
    /// points there are, whether there is a support plane, and its height.
    fn first_result(&self, draw: usize) -> usize {
        3 + 5 * self.room[..draw].iter().sum::<usize>()
    }
}

impl PictureSizes {
    fn n_pixels(&self) -> usize {
        self.size[0] as usize * self.size[1] as usize
    }

    fn n_image_bytes(&self) -> usize {
        self.depth_len + self.color_len.unwrap_or(0)
    }

    /// Numbers of the rays of its rows.
    fn n_rows(&self) -> usize {
        if self.distorted.is_some() { 0 } else { 3 * self.size[1] as usize }
    }

    /// Numbers of the rays of its pixels.
    fn n_table(&self) -> usize {
        if self.distorted.is_some() { 2 * self.n_pixels() } else { 0 }
    }
}

/// Words of the zeroed buffer: where each part begins.
const COUNTS: usize = 2;
const BOUNDS: usize = COUNTS + 2;
const N_DRAWN: usize = BOUNDS + 2;
const HISTOGRAM: usize = N_DRAWN + 2;
const DIGITS: usize = HISTOGRAM + HEIGHT_BINS;
const N_ZEROED: usize = DIGITS + 2 * DRAW_ROUNDS * N_DIGITS;

impl Buffers {
    fn take(sizes: &Sizes, places: &mut Places) -> Self {
        let n = sizes.n_pixels();
        // A key and two words of each round's rank.
        let ranks = 2 * (DRAW_ROUNDS + 1);
        Self {
            pictures: places.take(sizes.pictures.len()),
            settings: places.take(1),
            images: places.take(sizes.sum(PictureSizes::n_image_bytes)),
            rows: places.take(sizes.sum(PictureSizes::n_rows)),
            tables: places.take(sizes.sum(PictureSizes::n_table)),
            positions: places.take(3 * n),
            colors: places.take(n),
            keys: places.take(n),
            zeroed: places.take(N_ZEROED),
            ranks: [places.take(ranks), places.take(ranks)],
            sorted: sizes.room.map(|n| places.take(sorted_len(n))),
            results: places.take(sizes.first_result(2)),
        }
    }

    fn cloud(&self, sizes: &Sizes) -> CloudBuffers {
        let zeroed = |first: usize| self.zeroed.part(first, 0).address();
        CloudBuffers {
            pictures: self.pictures.address(),
            settings: self.settings.address(),
            positions: self.positions.address(),
            colors: self.colors.address(),
            keys: self.keys.address(),
            histogram: zeroed(HISTOGRAM),
            sum: zeroed(0),
            bounds: zeroed(BOUNDS),
            counts: zeroed(COUNTS),
            support: self.results.address(),
            n_pictures: number(sizes.pictures.len()),
            n: number(sizes.n_pixels()),
        }
    }

    fn draw(&self, sizes: &Sizes, draw: usize) -> DrawBuffers {
        let (first, room) = (sizes.first_result(draw), sizes.room[draw]);
        let result = |first: usize| self.results.part(first, 0).address();
        DrawBuffers {
            ranks: self.ranks[draw].address(),
            counts: self.zeroed.part(DIGITS + draw * DRAW_ROUNDS * N_DIGITS, 0).address(),
            n_drawn: self.zeroed.part(N_DRAWN + draw, 0).address(),
            sorted: self.sorted[draw].address(),
            positions: result(first),
            colors: result(first + 3 * room),
            pixels: result(first + 4 * room),
            number: number(draw),
            n_sorted: number(self.sorted[draw].len()),
        }
    }
}

impl Sampler {
    /// A sampler on `gpu`.
    pub fn new(gpu: Arc<Gpu>) -> Self {
        Self {
            sizes: Sizes::default(),
            buffers: Buffers::default(),
            graph: None,
            #[cfg(test)]
            n_captures: 0,
            images: Pinned::new(gpu.clone()),
            rows: Pinned::new(gpu.clone()),
            tables: Pinned::new(gpu.clone()),
            pictures: Pinned::new(gpu.clone()),
            settings: Pinned::new(gpu.clone()),
            results: Pinned::new(gpu.clone()),
            arena: Arena::new(gpu.clone()),
            gpu,
        }
    }

    fn run(
        &mut self,
        cameras: &[RawCamera],
        sampling: &Sampling,
        wanted: [usize; 2],
    ) -> Result<()> {
        // There are not more, and room never shrinks, so that frames of fewer particles replay the
        // same graph.
        let n_pixels = Sizes::of(cameras, [0; 2]).n_pixels();
        let wanted = wanted.map(|n| n.min(n_pixels));
        let room = std::array::from_fn(|draw| self.sizes.room[draw].max(wanted[draw]));
        let sizes = Sizes::of(cameras, room);
        check(&sizes)?;
        self.gpu.bind()?;
        // A run that failed may still be reading what is staged.
        self.gpu.synchronize()?;
        if self.graph.is_none() || sizes != self.sizes {
            // The old graph would write into memory that means something else.
            self.graph = None;
            (self.buffers, _) = self.arena.lay_out(|places| Buffers::take(&sizes, places))?;
            self.images.reserve(sizes.sum(PictureSizes::n_image_bytes))?;
            self.rows.reserve(sizes.sum(PictureSizes::n_rows))?;
            self.pictures.reserve(cameras.len())?;
            self.settings.reserve(1)?;
            self.results.reserve(sizes.first_result(2))?;
            self.sizes = sizes;
            self.upload_tables(cameras)?;
        }
        self.stage(cameras, sampling, wanted);
        let (gpu, buffers) = (&self.gpu, &self.buffers);
        gpu.upload(&self.pictures, buffers.pictures)?;
        gpu.upload(&self.settings, buffers.settings)?;
        gpu.upload(&self.images, buffers.images)?;
        gpu.upload(&self.rows, buffers.rows)?;
        gpu.clear(buffers.zeroed)?;
        if self.graph.is_none() {
            self.graph = Some(Graph::capture(gpu, || self.record())?);
            #[cfg(test)]
            {
                self.n_captures += 1;
            }
        }
        if let Some(graph) = &self.graph {
            graph.launch(gpu, "drawing particles")?;
        }
        gpu.download(buffers.results, &mut self.results)?;
        gpu.synchronize()
    }

    /// The kernels of a frame.
    fn record(&self) -> Result<()> {
        let (gpu, buffers, sizes) = (&self.gpu, &self.buffers, &self.sizes);
        let cloud = buffers.cloud(sizes);
        gpu.make_cloud(&cloud)?;
        (0..2).try_for_each(|draw| {
            let (of, sorted) = (buffers.draw(sizes, draw), buffers.sorted[draw]);
            gpu.draw_particles(&cloud, &of, sizes.room[draw], sorted)
        })
    }

    fn upload_tables(&mut self, cameras: &[RawCamera]) -> Result<()> {
        let n = self.buffers.tables.len();
        self.tables.reserve(n)?;
        let mut rest = self.tables.get_mut(n);
        for camera in cameras {
            if let RawRays::Table { table, .. } = &camera.rays {
                put(table.as_flattened(), &mut rest);
            }
        }
        self.gpu.upload(&self.tables, self.buffers.tables)?;
        // So that what is staged can be overwritten.
        self.gpu.synchronize()
    }

    /// Writes what goes to the device for a frame.
    fn stage(&mut self, cameras: &[RawCamera], sampling: &Sampling, wanted: [usize; 2]) {
        let (buffers, sizes) = (&self.buffers, &self.sizes);
        let mut images = self.images.get_mut(buffers.images.len());
        let mut rows = self.rows.get_mut(buffers.rows.len());
        let pictures = self.pictures.get_mut(cameras.len());
        let (mut first, mut byte, mut row, mut table) = (0, 0, 0, 0);
        for ((camera, sizes), picture) in cameras.iter().zip(&sizes.pictures).zip(pictures) {
            let depth = camera.depth;
            *picture = Picture {
                depth: buffers.images.part(byte, 0).address(),
                first: number(first),
                first_source: camera.first_source,
                width: camera.size[0],
                depth_bytes: number(depth.n_bytes),
                depth_step: number(depth.step),
                is_big: u32::from(depth.is_big),
                ..Picture::default()
            };
            put(depth.data, &mut images);
            if let Some((color, channels)) = camera.color {
                picture.color = buffers.images.part(byte + depth.data.len(), 0).address();
                picture.color_bytes = number(color.n_bytes);
                picture.color_step = number(color.step);
                picture.channels = channels.map(number);
                put(color.data, &mut images);
            }
            match &camera.rays {
                RawRays::Rows(rays) => {
                    picture.rays = buffers.rows.part(row, 0).address();
                    (picture.origin, picture.per_column) = (rays.origin, rays.per_column);
                    (0..camera.size[1]).for_each(|v| put(&rays.first_of(v), &mut rows));
                }
                RawRays::Table { rigid, .. } => {
                    picture.rays = buffers.tables.part(table, 0).address();
                    picture.has_table = 1;
                    (picture.rotation, picture.origin) = rigid.rows();
                }
            }
            first += sizes.n_pixels();
            byte += sizes.n_image_bytes();
            row += sizes.n_rows();
            table += sizes.n_table();
        }
        let workspace = &sampling.workspace;
        self.settings.get_mut(1)[0] = SamplerSettings {
            low: workspace.min,
            high: workspace.max,
            cells_per_m: MortonGrid::new(workspace).cells_per_m,
            stride: number(sampling.support_stride.max(1)),
            wanted: wanted.map(number),
            seed: sampling.seed,
            stamp: sampling.stamp_ns.cast_unsigned(),
        };
    }

    /// Takes the particles of a draw from what came back.
    fn read(&self, cameras: &[RawCamera], draw: usize, wanted: usize, to: &mut Particles) {
        let (sizes, results) = (&self.sizes, self.results.get(self.sizes.first_result(2)));
        let (first, room) = (sizes.first_result(draw), sizes.room[draw]);
        let n = (results[0] as usize).min(wanted);
        let words = |at: usize, len: usize| &results[first + at..][..len];
        to.support_m = (results[1] != 0).then(|| f32::from_bits(results[2]));
        let (positions, _) = words(0, 3 * n).as_chunks();
        to.positions.clear();
        to.positions.extend(positions.iter().map(|p: &[u32; 3]| p.map(f32::from_bits)));
        to.colors.clear();
        let channel = |color: u32, c: usize| f32::from((color >> (8 * c)) as u8) / 255.0;
        let colors = words(3 * room, n).iter();
        to.colors.extend(colors.map(|&color| std::array::from_fn(|c| channel(color, c))));
        to.sources.clear();
        to.sources.extend(words(4 * room, n).iter().map(|&pixel| {
            let (mut within, mut source) = (pixel, 0);
            for (camera, sizes) in cameras.iter().zip(&sizes.pictures) {
                source = camera.first_source + within;
                if (within as usize) < sizes.n_pixels() {
                    break;
                }
                within -= number(sizes.n_pixels());
            }
            source
        }));
    }
}

impl RawSampler for Sampler {
    /// After an error of the GPU the next call starts afresh.
    fn sample(
        &mut self,
        cameras: &[RawCamera],
        sampling: &Sampling,
        mut samples: [(&mut Particles, usize); 2],
    ) -> Result<()> {
        let wanted = samples.each_ref().map(|(_, n)| *n);
        let done = self.run(cameras, sampling, wanted);
        if done.is_err() {
            self.graph = None;
            self.sizes = Sizes::default();
        }
        done?;
        for (draw, (particles, n)) in samples.iter_mut().enumerate() {
            self.read(cameras, draw, *n, particles);
        }
        Ok(())
    }
}

/// Copies `values` to the first places of `rest`, which are its no more.
fn put<T: Copy>(values: &[T], rest: &mut &mut [T]) {
    let (first, behind) = std::mem::take(rest).split_at_mut(values.len());
    first.copy_from_slice(values);
    *rest = behind;
}

/// Holds sizes to what kernels count with.
fn check(sizes: &Sizes) -> Result<()> {
    let (what, expected, got) = ("pixels of all cameras, at most", MAX_PIXELS, sizes.n_pixels());
    if got > expected {
        return Err(Error::Shape { what, expected, got });
    }
    Ok(())
}
