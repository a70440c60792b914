//! Times the decoding of sensor messages of 640 x 480, after checking it.
//!
//! `cargo bench --bench decode`: prints the median and the least time, as other programs disturb the
//! median; and of clouds, the time that moving the same bytes takes (`bound`, from the least time
//! of a copy in the same run) and the least time's ratio to it.

#[path = "../src/message/encode.rs"]
#[allow(dead_code)]
mod encode;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, ensure};
use encode::CdrWriter;
use forecloud::base::random::{draw, uniform};
use forecloud::message::{CameraInfo, CompressedImage, Header, Image, PointCloud2};
use forecloud::vision::camera::{Camera, ColorImage, DepthImage, RayTable};
use forecloud_bag::bag::Bag;

/// Timed runs of each figure, after one that warms up.
const RUNS: usize = 31;
const WIDTH: usize = 640;
const HEIGHT: usize = 480;
const N: usize = WIDTH * HEIGHT;

type Colored = (Vec<[f32; 3]>, Vec<[u8; 3]>);

fn main() -> anyhow::Result<()> {
    let copied = vec![1u8; 32 * N];
    let mut target = vec![0u8; 32 * N];
    let copy = time(|| {
        target.copy_from_slice(std::hint::black_box(&copied));
        std::hint::black_box(&target);
        Ok(())
    })?;
    let bytes_per_ms = 2.0 * copied.len() as f64 / copy.least_ms;
    println!("memory: {:.1} GB/s (read and written, in copies of 10 MB)", bytes_per_ms * 1e-6);
    println!(
        "\n{:<36} {:>9} {:>8} {:>8} {:>6}",
        "640 x 480", "median ms", "least", "bound", "ratio"
    );
    for (point_step, rgb_offset) in [(32, 16), (16, 12)] {
        point_clouds(point_step, rgb_offset, bytes_per_ms)?;
    }
    images()?;
    rays()
}

/// Milliseconds of a run.
struct Time {
    median_ms: f64,
    least_ms: f64,
}

fn line(what: &str, Time { median_ms, least_ms }: Time) {
    println!("{what:<36} {median_ms:>9.3} {least_ms:>8.3}");
}

/// Decoding to positions and colours, by the library and by a plain loop over the bytes.
fn point_clouds(point_step: usize, rgb_offset: usize, bytes_per_ms: f64) -> anyhow::Result<()> {
    let data = points(point_step, rgb_offset);
    let message = cloud_message(point_step, rgb_offset, &data);
    let (mut ours, mut plain) = (Colored::default(), Colored::default());
    decode(&message, &mut ours)?;
    plain_loop(&fields(rgb_offset), point_step, &data, &mut plain);
    ensure!(ours == plain && ours.0.len() > N / 2, "the plain loop gives another cloud");

    let Time { median_ms, least_ms } = time(|| decode(&message, &mut ours))?;
    // The message copied (this one is borrowed; a node's is not) and read again, positions and colours
    // written.
    let moved = N * 3 * point_step + ours.0.len() * 15;
    let bound = moved as f64 / bytes_per_ms;
    let name = format!("PointCloud2 of {point_step} bytes a point");
    let ratio = least_ms / bound;
    println!("{name:<36} {median_ms:>9.3} {least_ms:>8.3} {bound:>8.3} {ratio:>6.2}");
    let decode_ms = time(|| {
        std::hint::black_box(PointCloud2::decode(&message)?);
        Ok(())
    })?;
    line("  of this, PointCloud2::decode", decode_ms);
    let fields = fields(rgb_offset);
    let plain_ms = time(|| {
        plain_loop(std::hint::black_box(&fields), point_step, &data, &mut plain);
        Ok(())
    })?;
    line("  a plain loop over the fields", plain_ms);
    Ok(())
}

fn decode(message: &[u8], (positions, colors): &mut Colored) -> anyhow::Result<()> {
    positions.clear();
    colors.clear();
    PointCloud2::decode(message)?.for_each(|_, position, color| {
        positions.push(position);
        colors.push(color);
    });
    Ok(())
}

/// Name, offset, datatype.
type Field = (&'static str, usize, u8);

fn fields(rgb_offset: usize) -> [Field; 4] {
    [("x", 0, 7), ("y", 4, 7), ("z", 8, 7), ("rgb", rgb_offset, 7)]
}

/// What one would write first: every field of every point, by name and type.
fn plain_loop(fields: &[Field], point_step: usize, data: &[u8], out: &mut Colored) {
    let (positions, colors) = out;
    positions.clear();
    colors.clear();
    for point in data.chunks_exact(point_step) {
        let (mut position, mut color) = ([f32::NAN; 3], [128; 3]);
        for &(name, offset, datatype) in fields {
            let bytes: [u8; 4] = point[offset..offset + 4].try_into().expect("4 bytes");
            let value = match datatype {
                7 => f32::from_le_bytes(bytes),
                _ => u32::from_le_bytes(bytes) as f32,
            };
            match name {
                "x" => position[0] = value,
                "y" => position[1] = value,
                "z" => position[2] = value,
                "rgb" => color = [bytes[2], bytes[1], bytes[0]],
                _ => {}
            }
        }
        if position.iter().all(|x| x.is_finite()) && position != [0.0; 3] {
            positions.push(position);
            colors.push(color);
        }
    }
}

/// Points without the left tenth of the image, which stereo cameras don't measure.
fn points(point_step: usize, rgb_offset: usize) -> Vec<u8> {
    let mut data = vec![0; N * point_step];
    for (i, point) in (0u64..).zip(data.chunks_exact_mut(point_step)) {
        let unit = |stream| uniform(draw(1, 0, i, stream));
        for axis in 0..3u64 {
            let is_missing = (i as usize % WIDTH) < WIDTH / 10;
            let x = if is_missing { f32::NAN } else { unit(axis) };
            point[4 * axis as usize..][..4].copy_from_slice(&x.to_le_bytes());
        }
        point[rgb_offset..][..4].copy_from_slice(&(draw(2, 0, i, 0) as u32).to_le_bytes());
    }
    data
}

fn cloud_message(point_step: usize, rgb_offset: usize, data: &[u8]) -> Vec<u8> {
    let writer = CdrWriter::new(false).header(1, 2, "optical").u32(HEIGHT as u32).u32(WIDTH as u32);
    let fields = fields(rgb_offset);
    let writer = fields.iter().fold(writer.u32(4), |writer, &(name, offset, datatype)| {
        writer.string(name).u32(offset as u32).u8(datatype).u32(1)
    });
    let writer = writer.u8(0).u32(point_step as u32).u32((WIDTH * point_step) as u32);
    writer.u8s(data).u8(1).finish()
}

/// Colour and depth of 640 x 480: the test picture, and four depth images of the demo recording.
fn images() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let jpeg = std::fs::read(root.join("tests/data/compressed/picture.jpg"))?;
    let color = compressed("JPEG", "rgb8; jpeg compressed bgr8", &jpeg)?;
    ensure!(color.encoding == "rgb8" && color.data.iter().any(|&x| x != color.data[0]));
    let png = write_png(&color.data, png::ColorType::Rgb, png::BitDepth::Eight)?;
    let again = compressed("PNG, colour", "rgb8; png compressed bgr8", &png)?;
    ensure!(again.data == color.data, "PNG gives other colours");
    let depth = demo_depth(&root.join("data/demo_tumble"))?;
    let samples: Vec<u8> = depth.data.chunks_exact(2).flat_map(|mm| [mm[1], mm[0]]).collect();
    let png = write_png(&samples, png::ColorType::Grayscale, png::BitDepth::Sixteen)?;
    let again = compressed("PNG, 16-bit depth", "16UC1; png compressed ", &png)?;
    ensure!(again.data == depth.data, "PNG gives other depths");
    let parameters = [0.0f32, 10_100.0, -1009.0];
    let header: Vec<u8> = parameters.iter().flat_map(|x| x.to_le_bytes()).collect();
    let inverse =
        compressed("compressedDepth 32FC1", "32FC1; compressedDepth png", &[header, png].concat())?;

    let message = image_message(&color);
    line("Image, rgb8: decode", time(|| consume(Image::decode(&message)?.data.len()))?);
    for (name, image) in [("16UC1", &depth), ("32FC1", &inverse)] {
        let rows = DepthImage::new(image)?;
        let sum =
            || (0..HEIGHT as u32).flat_map(|v| rows.row(v)).filter(|d| !d.is_nan()).sum::<f32>();
        ensure!(sum() > 0.0, "no depth");
        let mut out = Vec::with_capacity(N);
        let ms = time(|| {
            out.clear();
            (0..HEIGHT as u32).for_each(|v| out.extend(rows.row(v)));
            consume(out.len())
        })?;
        line(&format!("DepthImage::row, {name}"), ms);
    }
    let mut out = Vec::with_capacity(N);
    for encoding in ["rgb8", "bgr8"] {
        let image = Image { encoding: encoding.into(), ..color.clone() };
        let rows = ColorImage::new(&image)?;
        let ms = time(|| {
            out.clear();
            (0..HEIGHT as u32).for_each(|v| out.extend(rows.row(v)));
            consume(out.len())
        })?;
        line(&format!("ColorImage::row, {encoding}"), ms);
    }
    Ok(())
}

fn consume(value: usize) -> anyhow::Result<()> {
    std::hint::black_box(value);
    Ok(())
}

/// Times the decoding of `data`; the image.
fn compressed(name: &str, format: &str, data: &[u8]) -> anyhow::Result<Image> {
    let message = CdrWriter::new(false).header(1, 2, "optical").string(format).u8s(data).finish();
    let image = CompressedImage::decode(&message)?;
    ensure!((image.width as usize, image.height as usize) == (WIDTH, HEIGHT), "{name}: size");
    let ms = time(|| consume(CompressedImage::decode(&message)?.data.len()))?;
    line(&format!("{name} of {} KB", data.len() / 1000), ms);
    Ok(image)
}

fn write_png(data: &[u8], color: png::ColorType, depth: png::BitDepth) -> anyhow::Result<Vec<u8>> {
    let mut png = Vec::new();
    let mut encoder = png::Encoder::new(&mut png, WIDTH as u32, HEIGHT as u32);
    encoder.set_color(color);
    encoder.set_depth(depth);
    encoder.write_header()?.write_image_data(data)?;
    Ok(png)
}

fn image_message(image: &Image) -> Vec<u8> {
    let writer = CdrWriter::new(false).header(1, 2, "optical").u32(image.height).u32(image.width);
    writer.string(&image.encoding).u8(0).u32(image.step).u8s(&image.data).finish()
}

/// Four depth images of 320 x 240, side by side.
fn demo_depth(path: &Path) -> anyhow::Result<Image> {
    let mut quarters = Vec::new();
    for message in Bag::open(path)?.messages() {
        let message = message?;
        if message.topic.ends_with("/depth/image_raw") && quarters.len() < 4 {
            quarters.push(Image::decode(&message.data)?);
        }
    }
    let quarters = quarters.get(..4).context("fewer than four depth images")?;
    let rows = |pair: &[Image]| -> Vec<u8> {
        (0..240)
            .flat_map(|v| [pair[0].row(v), pair[1].row(v)])
            .flatten()
            .flatten()
            .copied()
            .collect()
    };
    let data = [rows(&quarters[..2]), rows(&quarters[2..])].concat();
    ensure!(data.len() == 2 * N, "depth images of another size");
    let (height, width) = (HEIGHT as u32, WIDTH as u32);
    let header = Header::default();
    Ok(Image {
        header,
        height,
        width,
        encoding: "16UC1".into(),
        is_bigendian: false,
        step: 2 * width,
        data,
    })
}

/// The rays of a colour camera with eight coefficients.
fn rays() -> anyhow::Result<()> {
    let info = CameraInfo {
        header: Header::default(),
        height: HEIGHT as u32,
        width: WIDTH as u32,
        distortion_model: "rational_polynomial".into(),
        d: vec![0.5208, -2.7146, 0.00072, -0.00024, 1.5703, 0.3977, -2.5330, 1.4964],
        k: [403.6, 0.0, 319.1, 0.0, 403.5, 243.5, 0.0, 0.0, 1.0],
        r: [0.0; 9],
        p: [0.0; 12],
    };
    let camera = Camera::new(&info)?;
    let size = [WIDTH as u32, HEIGHT as u32];
    ensure!(RayTable::new(camera, size)?.n_without_ray() == 0, "pixels without a ray");
    line(
        "RayTable::new, once per calibration",
        time(|| {
            std::hint::black_box(RayTable::new(camera, size)?);
            Ok(())
        })?,
    );
    Ok(())
}

/// Times `f`.
fn time(mut f: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<Time> {
    f()?;
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let start = Instant::now();
        f()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(Time { median_ms: times[times.len() / 2], least_ms: times[0] })
}
