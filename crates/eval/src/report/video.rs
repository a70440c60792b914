//! Tables of the pictures that were drawn, for people.

use std::fmt::{self, Formatter};

use super::table::METHOD_WIDTH;
use crate::film::{VideoReport, VideoRow};

/// Columns left of the method, as in the other tables.
const INDENT: usize = 10;

impl VideoReport {
    /// Similarity and signal-to-noise ratio, a table each.
    pub(super) fn sections(&self, f: &mut Formatter<'_>, step_secs: f64) -> fmt::Result {
        let [width, height] = self.size;
        let n = self.n_frames;
        let structural = "structural similarity (SSIM) to what was seen, 1: the same";
        let psnr = "peak signal-to-noise ratio to what was seen, dB";
        for (title, is_ssim, digits) in [(structural, true, 3), (psnr, false, 1)] {
            let values = |row: &VideoRow| if is_ssim { row.ssim.clone() } else { row.psnr.clone() };
            writeln!(f, "Drawn pictures, up to {width}x{height}, of {n} frames: {title}")?;
            write!(f, "{:1$}", "", INDENT + METHOD_WIDTH)?;
            let n_steps = self.rows.first().map_or(0, |row| row.ssim.len());
            for step in 0..n_steps {
                write!(f, "{:>9}", format!("{} s", (step as f64 * step_secs) as f32))?;
            }
            writeln!(f)?;
            for row in &self.rows {
                write!(f, "{:INDENT$}{:METHOD_WIDTH$}", "", row.method.label())?;
                for value in values(row) {
                    let shown = value.map_or("-".into(), |value| format!("{value:.digits$}"));
                    write!(f, "{shown:>9}")?;
                }
                writeln!(f)?;
            }
            writeln!(f)?;
        }
        let took = self.picture_ms.map_or("-".into(), |ms| format!("{ms:.0}"));
        writeln!(
            f,
            "Pixels without a measured depth do not count; a picture took {took} ms to draw\n"
        )
    }
}
