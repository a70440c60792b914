//! Pixels: discs and lines, smooth by drawing at twice the size; text; PNG.

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};

use forecloud_bag::outputs::SOFTWARE;

/// Red, green, blue.
pub type Rgb = [u8; 3];

/// Drawn pixels a side of one shown.
const FINE: usize = 2;

/// Letters of a `scale`: 1 small, 2 for lines of text, 3 for titles.
fn letters(scale: usize) -> RasterHeight {
    match scale {
        0 | 1 => RasterHeight::Size16,
        2 => RasterHeight::Size24,
        _ => RasterHeight::Size32,
    }
}

/// Width of a line of text (px).
pub fn text_width(scale: usize, text: &str) -> usize {
    get_raster_width(FontWeight::Regular, letters(scale)) * text.chars().count()
}

/// A picture that is drawn on.
pub struct Canvas {
    size: [usize; 2],
    fine: Vec<Rgb>,
}

impl Canvas {
    /// A picture of `size` (width, height) in one colour.
    pub fn new(size: [usize; 2], color: Rgb) -> Self {
        Self { size, fine: vec![color; FINE * size[0] * FINE * size[1]] }
    }

    /// A filled disc; centre and radius in shown pixels.
    pub fn disc(&mut self, center: [f32; 2], radius: f32, color: Rgb) {
        let [cx, cy] = center.map(|c| c * FINE as f32);
        let radius = radius * FINE as f32;
        let reach = radius.ceil() as i64;
        for dy in -reach..=reach {
            for dx in -reach..=reach {
                if (dx * dx + dy * dy) as f32 <= radius * radius {
                    self.set(cx as i64 + dx, cy as i64 + dy, color);
                }
            }
        }
    }

    /// A line of a width; all in shown pixels.
    pub fn line(&mut self, [from, to]: [[f32; 2]; 2], width: f32, color: Rgb) {
        let (dx, dy) = (to[0] - from[0], to[1] - from[1]);
        let n = ((dx.abs().max(dy.abs()) * FINE as f32).ceil() as usize).clamp(1, 10_000);
        for i in 0..=n {
            let t = i as f32 / n as f32;
            self.disc([from[0] + t * dx, from[1] + t * dy], 0.5 * width, color);
        }
    }

    /// A line of text, its middle 4 `scale` pixels below `at`, where it begins; characters beyond
    /// Latin are left out, with their room.
    pub fn text(&mut self, at: [usize; 2], scale: usize, text: &str, color: Rgb) {
        let size = letters(scale);
        let top = (at[1] + 4 * scale) as i64 - size.val() as i64 / 2;
        let width = get_raster_width(FontWeight::Regular, size);
        for (index, letter) in text.chars().enumerate() {
            let Some(letter) = get_raster(letter, FontWeight::Regular, size) else { continue };
            let left = (at[0] + index * width) as i64;
            for (row, y) in letter.rows().zip(top..) {
                for (cover, x) in row.iter().zip(left..).filter(|(cover, _)| **cover > 0) {
                    self.blend(x, y, color, *cover);
                }
            }
        }
    }

    /// A picture of `width` columns, colours from 0 to 1, its upper left corner at `at`; each of its pixels
    /// `scale` shown ones a side.
    pub(crate) fn pixels(
        &mut self,
        at: [usize; 2],
        width: usize,
        scale: usize,
        colors: &[[f32; 3]],
    ) {
        let side = FINE * scale;
        for (i, color) in colors.iter().enumerate() {
            let color = color.map(|c| (255.0 * c.clamp(0.0, 1.0)).round() as u8);
            let corner = [at[0] * FINE + i % width * side, at[1] * FINE + i / width * side];
            for (x, y) in (0..side).flat_map(|y| (0..side).map(move |x| (x, y))) {
                self.set((corner[0] + x) as i64, (corner[1] + y) as i64, color);
            }
        }
    }

    /// Mixes a colour into a shown pixel; `cover` of 255 takes its place.
    fn blend(&mut self, x: i64, y: i64, color: Rgb, cover: u8) {
        let [width, height] = self.size.map(|side| side as i64);
        if !(0..width).contains(&x) || !(0..height).contains(&y) {
            return;
        }
        let (x, y) = (FINE * x as usize, FINE * y as usize);
        for i in 0..FINE * FINE {
            let below = &mut self.fine[(y + i / FINE) * FINE * width as usize + x + i % FINE];
            let (share, rest) = (u16::from(cover), 255 - u16::from(cover));
            *below = std::array::from_fn(|c| {
                ((u16::from(color[c]) * share + u16::from(below[c]) * rest + 127) / 255) as u8
            });
        }
    }

    fn set(&mut self, x: i64, y: i64, color: Rgb) {
        let [width, height] = self.size.map(|side| (FINE * side) as i64);
        if (0..width).contains(&x) && (0..height).contains(&y) {
            self.fine[(y * width + x) as usize] = color;
        }
    }

    /// The picture as a PNG file's bytes.
    pub fn png(&self) -> Vec<u8> {
        Self::film(&[(self, 0.0)])
    }

    /// Canvases of one size as an animated PNG file, again and again, each shown for so long (s); one
    /// alone stands still. Programs that know no animation show the first.
    pub(crate) fn film(frames: &[(&Self, f64)]) -> Vec<u8> {
        let [width, height] = frames.first().map_or([1, 1], |(canvas, _)| canvas.size);
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width as u32, height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        // By this a picture of ours is told from others', which are never replaced.
        let named = encoder.add_text_chunk("Software".into(), SOFTWARE.into());
        let animated = named.and_then(|()| match frames.len() {
            0 | 1 => Ok(()),
            n => encoder.set_animated(n as u32, 0),
        });
        let written = animated.and_then(|()| encoder.write_header()).and_then(|mut writer| {
            frames.iter().try_for_each(|(canvas, secs)| {
                if frames.len() > 1 {
                    writer.set_frame_delay((1e3 * secs).round() as u16, 1000)?;
                }
                writer.write_image_data(&canvas.shown())
            })
        });
        written.expect("memory takes any picture of the right size");
        bytes
    }

    /// Means over the drawn pixels of each shown one, row by row.
    fn shown(&self) -> Vec<u8> {
        let [width, height] = self.size;
        let mut shown = Vec::with_capacity(3 * width * height);
        for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
            for channel in 0..3 {
                let fine = |i: usize| {
                    let (row, column) = (FINE * y + i / FINE, FINE * x + i % FINE);
                    u32::from(self.fine[row * FINE * width + column][channel])
                };
                shown.push(((0..FINE * FINE).map(fine).sum::<u32>() / (FINE * FINE) as u32) as u8);
            }
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_png_holds_what_was_drawn() {
        let mut canvas = Canvas::new([30, 20], [255; 3]);
        canvas.disc([10.0, 5.0], 3.0, [255, 0, 0]);
        canvas.disc([-50.0, 1e9], 3.0, [0; 3]); // outside
        canvas.line([[0.0, 15.0], [29.0, 15.0]], 2.0, [0, 0, 255]);
        canvas.text([22, 0], 1, "I", [0; 3]);
        canvas.text([25, 18], 3, "cut off at the edges, and no letter: \u{4e00}", [0; 3]);
        let bytes = canvas.png();
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; 30 * 20 * 3];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height), (30, 20));
        let at = |x: usize, y: usize| &pixels[3 * (30 * y + x)..][..3];
        assert_eq!(
            (at(10, 5), at(10, 15), at(16, 5)),
            (&[255, 0, 0][..], &[0, 0, 255][..], &[255; 3][..])
        );
        // Letters have soft edges.
        let greys: Vec<u8> = (20..30).map(|x| at(x, 4)[0]).collect();
        assert!(greys.iter().any(|&g| g < 100) && greys.iter().any(|&g| (100..250).contains(&g)));
    }

    #[test]
    fn a_film_shows_one_canvas_after_the_other() {
        let canvases = [[9, 9, 9], [200, 0, 0]].map(|color| Canvas::new([4, 3], color));
        let bytes = Canvas::film(&[(&canvases[0], 0.2), (&canvases[1], 1.0)]);
        let mut reader = png::Decoder::new(std::io::Cursor::new(&bytes)).read_info().unwrap();
        assert_eq!(reader.info().animation_control.unwrap().num_frames, 2);
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        for color in [[9, 9, 9], [200, 0, 0]] {
            reader.next_frame(&mut pixels).unwrap();
            assert_eq!(pixels[..3], color);
        }
        let last = reader.info().frame_control.unwrap();
        assert_eq!((last.delay_num, last.delay_den), (1000, 1000));
    }
}
