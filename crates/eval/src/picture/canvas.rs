//! Pixels: discs and lines by `tiny-skia`, text, PNG.

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};
use tiny_skia::{Color, ColorU8, FillRule, LineCap, Paint, PathBuilder, Pixmap, Stroke, Transform};

use forecloud_bag::outputs::SOFTWARE;

/// Red, green, blue.
pub type Rgb = [u8; 3];

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
    pixmap: Pixmap,
}

impl Canvas {
    /// A picture of `size` (width, height), at least one pixel and at most 2^14 a side, in one colour.
    pub fn new(size: [usize; 2], color: Rgb) -> Self {
        let [width, height] = size.map(|side| side.clamp(1, 1 << 14) as u32);
        let mut pixmap = Pixmap::new(width, height).expect("a picture of these sizes fits");
        pixmap.fill(opaque(color));
        Self { pixmap }
    }

    /// A filled disc; centre and radius in pixels.
    pub fn disc(&mut self, center: [f32; 2], radius: f32, color: Rgb) {
        let Some(disc) = PathBuilder::from_circle(center[0], center[1], radius) else { return };
        let (rule, still) = (FillRule::Winding, Transform::identity());
        self.pixmap.fill_path(&disc, &paint(color), rule, still, None);
    }

    /// A line of a width; all in pixels.
    pub fn line(&mut self, [from, to]: [[f32; 2]; 2], width: f32, color: Rgb) {
        let mut path = PathBuilder::new();
        path.move_to(from[0], from[1]);
        path.line_to(to[0], to[1]);
        let Some(path) = path.finish() else { return };
        let stroke = Stroke { width, line_cap: LineCap::Round, ..Stroke::default() };
        self.pixmap.stroke_path(&path, &paint(color), &stroke, Transform::identity(), None);
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
        let [left, top] = at.map(|x| x as i64);
        for (i, color) in colors.iter().enumerate() {
            let color = color.map(|c| (255.0 * c.clamp(0.0, 1.0)).round() as u8);
            let [x, y] = [i % width * scale, i / width * scale].map(|offset| offset as i64);
            for (dx, dy) in
                (0..scale as i64).flat_map(|dy| (0..scale as i64).map(move |dx| (dx, dy)))
            {
                self.blend(left + x + dx, top + y + dy, color, 255);
            }
        }
    }

    /// Mixes a colour into a pixel; `cover` of 255 takes its place. Outside of the picture nothing happens.
    fn blend(&mut self, x: i64, y: i64, color: Rgb, cover: u8) {
        let width = i64::from(self.pixmap.width());
        if !(0..width).contains(&x) || !(0..i64::from(self.pixmap.height())).contains(&y) {
            return;
        }
        let below = &mut self.pixmap.pixels_mut()[(y * width + x) as usize];
        let (share, rest) = (u16::from(cover), 255 - u16::from(cover));
        let mix = |over: u8, below: u8| {
            ((u16::from(over) * share + u16::from(below) * rest + 127) / 255) as u8
        };
        let [r, g, b] = color;
        *below = ColorU8::from_rgba(
            mix(r, below.red()),
            mix(g, below.green()),
            mix(b, below.blue()),
            255,
        )
        .premultiply();
    }

    /// The picture as a PNG file's bytes.
    pub fn png(&self) -> Vec<u8> {
        Self::film(&[(self, 0.0)])
    }

    /// Canvases of one size as an animated PNG file, again and again, each shown for so long (s); one
    /// alone stands still. Programs that know no animation show the first.
    pub(crate) fn film(frames: &[(&Self, f64)]) -> Vec<u8> {
        let size = |canvas: &Self| [canvas.pixmap.width(), canvas.pixmap.height()];
        let [width, height] = frames.first().map_or([1, 1], |(canvas, _)| size(canvas));
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width, height);
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

    /// Red, green and blue, row by row: nothing shines through a canvas.
    fn shown(&self) -> Vec<u8> {
        let colors = self.pixmap.pixels().iter();
        colors.flat_map(|pixel| [pixel.red(), pixel.green(), pixel.blue()]).collect()
    }
}

fn opaque([r, g, b]: Rgb) -> Color {
    Color::from_rgba8(r, g, b, 255)
}

fn paint(color: Rgb) -> Paint<'static> {
    let mut paint = Paint { anti_alias: true, ..Paint::default() };
    paint.set_color(opaque(color));
    paint
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
