//! A sheet of pictures: what a camera saw, what it was predicted to see, and what it would see if
//! nothing moved; now and after each step.

use std::path::Path;

use super::{Colors, Drawn};
use crate::picture::canvas::{Canvas, Rgb};
use crate::similarity::alike;
use forecloud::Result;
use forecloud_bag::outputs::{Kind, Outputs};
use forecloud_video::Picture;

/// Shown pixels a side of one that was drawn.
const SCALE: usize = 2;
/// Room between pictures, and for a line of text (px).
const GAP: usize = 8;
const LINE: usize = 26;

/// Whose pictures a column has.
const NAMES: [&str; 3] = ["seen", "predicted", "nothing moves"];
/// By how much films are slower than what they show; how long their last picture stays (s).
const SLOWER: f64 = 2.0;
const LAST_SECS: f64 = 1.0;

const BACKGROUND: Rgb = [250, 250, 248];
const TEXT: Rgb = [40, 40, 46];

/// Pictures of one predicted frame.
#[derive(Debug, Clone)]
pub struct Sheet {
    /// How much what was seen changes: mean absolute difference of colours, first to last.
    pub change: f64,
    size: [u32; 2],
    /// A column for each step whose end was seen.
    columns: Vec<Column>,
}

/// One time.
#[derive(Debug, Clone)]
struct Column {
    secs: f64,
    /// Seen, predicted, and as it is now.
    pictures: [Colors; 3],
    /// Of what was seen (m).
    depths_m: Vec<f32>,
}

impl Sheet {
    /// Of the camera in whose pictures most changes; none if nothing was seen later.
    pub(super) fn of(drawn: &Drawn, step_secs: f64, far_m: f32) -> Option<Self> {
        let sheets = (0..drawn.pictures.len())
            .filter_map(|number| Self::of_camera(drawn, number, step_secs, far_m));
        sheets.max_by(|a, b| a.change.total_cmp(&b.change))
    }

    fn of_camera(drawn: &Drawn, number: usize, step_secs: f64, far_m: f32) -> Option<Self> {
        let picture = &drawn.pictures[number];
        let same = |then: &&Picture| then.camera == picture.camera && then.size == picture.size;
        let mut columns = Vec::new();
        for (step, (seen, predicted)) in drawn.seen.iter().zip(&drawn.predicted).enumerate() {
            let Some(then) = seen.as_ref().and_then(|(_, seen)| seen.iter().find(same)) else {
                continue;
            };
            let still = &drawn.predicted[0][number];
            let pictures = [then.drawable_colors(far_m), predicted[number].clone(), still.clone()];
            let (secs, depths_m) = (step as f64 * step_secs, then.depths_m.clone());
            columns.push(Column { secs, pictures, depths_m });
        }
        let [first, .., last] = &columns[..] else { return None };
        let numbers = |column: &Column| column.pictures[0].as_flattened().to_vec();
        let both = numbers(first).into_iter().zip(numbers(last));
        let change = both.map(|(a, b)| f64::from((a - b).abs())).sum::<f64>()
            / (3 * picture.n_pixels()) as f64;
        Some(Self { change, size: picture.size, columns })
    }

    /// Writes the sheet as a PNG file.
    ///
    /// # Errors
    /// As [`Outputs::write`].
    pub fn save(&self, path: &Path, outputs: &Outputs) -> Result<()> {
        outputs.write(path, Kind::Picture, &self.canvas().png())
    }

    /// A short film as an animated PNG file: what was seen beside what was predicted and what would be
    /// seen if nothing moved, at half speed; `scale` shown pixels a side of each that was drawn.
    pub fn film(&self, scale: usize) -> Vec<u8> {
        let frames: Vec<Canvas> =
            self.columns.iter().map(|column| self.frame(column, scale)).collect();
        let later = self.columns.iter().skip(1).map(|column| Some(column.secs)).chain([None]);
        let lasts = self.columns.iter().zip(later).map(|(column, later)| match later {
            Some(later) => SLOWER * (later - column.secs).clamp(0.0, 1.0),
            None => LAST_SECS,
        });
        let frames: Vec<(&Canvas, f64)> = frames.iter().zip(lasts).collect();
        Canvas::film(&frames)
    }

    /// One time, its pictures side by side.
    fn frame(&self, column: &Column, scale: usize) -> Canvas {
        let [width, height] = self.size.map(|n| scale * n as usize);
        let size = [GAP + 3 * (width + GAP), LINE + height + GAP];
        let mut canvas = Canvas::new(size, BACKGROUND);
        for (place, picture) in column.pictures.iter().enumerate() {
            let left = GAP + place * (width + GAP);
            let text = match place {
                0 => format!("{}, {:.1} s", NAMES[0], column.secs),
                _ => NAMES[place].to_owned(),
            };
            canvas.text([left, 8], 1, &text, TEXT);
            canvas.pixels([left, LINE], self.size[0] as usize, scale, picture);
        }
        canvas
    }

    fn canvas(&self) -> Canvas {
        let [width, height] = self.size.map(|n| SCALE * n as usize);
        let row = height + LINE + GAP;
        let size = [GAP + self.columns.len() * (width + GAP), LINE + 3 * row + GAP];
        let mut canvas = Canvas::new(size, BACKGROUND);
        for (number, column) in self.columns.iter().enumerate() {
            let left = GAP + number * (width + GAP);
            canvas.text([left, 8], 1, &format!("{:.1} s", column.secs), TEXT);
            let [seen, ..] = &column.pictures;
            for (place, picture) in column.pictures.iter().enumerate() {
                let name = NAMES[place];
                let alike = alike(self.size, seen, picture, &column.depths_m).filter(|_| place > 0);
                let alike = alike.map_or(String::new(), |(ssim, _)| format!(": SSIM {ssim:.3}"));
                let top = LINE + place * row;
                canvas.text([left, top + 8], 1, &format!("{name}{alike}"), TEXT);
                canvas.pixels([left, top + LINE], self.size[0] as usize, SCALE, picture);
            }
        }
        canvas
    }
}
