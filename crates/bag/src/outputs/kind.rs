//! What Forecloud writes, and how it is told from what others write.

use std::fmt::{self, Display, Formatter};

/// Name of the program in what it writes.
pub const GENERATOR: &str = "forecloud";
/// The program in the text chunk `Software` of pictures.
pub const SOFTWARE: &str = "Forecloud";

/// The beginning of plots (SVG).
pub const PLOT: &str = "<!-- forecloud -->\n";

/// The beginning of labels.
pub const LABELS: &str = "forecloud labels\n";

/// A kind of file that Forecloud writes; each begins with something that no other program writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// PNG, whose text chunk `Software` says Forecloud.
    Picture,
    /// SVG that begins with [`PLOT`].
    Plot,
    /// HTML with our generator in its head.
    Page,
    /// A JSON object with `"generator": "forecloud…"`.
    Json,
    /// CSV that begins with this line.
    Table(&'static str),
    /// MCAP whose header names our library.
    Predictions,
    /// safetensors with our configuration in its metadata: a model, or a checkpoint.
    Weights,
    /// safetensors with the configuration of encoder and renderer of pictures in its metadata.
    Video,
    /// The log of a training: JSON lines with `step` and `loss_mm`, or none yet.
    TrainingLog,
    /// Labels of a recording, which begin with [`LABELS`].
    Labels,
}

impl Kind {
    /// Whether a file that begins with `head` is of this kind and by Forecloud.
    pub fn is_ours(self, head: &[u8]) -> bool {
        match self {
            Self::Picture => is_picture(head),
            Self::Plot => head.starts_with(PLOT.as_bytes()),
            Self::Page => contains(head, b"<meta name=\"generator\" content=\"forecloud"),
            Self::Json => is_json(head),
            Self::Table(first) => {
                let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
                line.trim_ascii_end() == first.as_bytes()
            }
            Self::Predictions => is_mcap(head).unwrap_or(false),
            Self::Weights => head.get(8) == Some(&b'{') && contains(head, b"\"forecloud.config\""),
            Self::Video => head.get(8) == Some(&b'{') && contains(head, b"\"forecloud.video\""),
            Self::TrainingLog => is_log(head),
            Self::Labels => head.starts_with(LABELS.as_bytes()),
        }
    }
}

impl Display for Kind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Picture => "picture (PNG)",
            Self::Plot => "plot (SVG)",
            Self::Page => "page (HTML)",
            Self::Json => "report (JSON)",
            Self::Table(_) => "table (CSV)",
            Self::Predictions => "recording of predictions (MCAP)",
            Self::Weights => "model or checkpoint (safetensors)",
            Self::Video => "encoder and renderer of pictures (safetensors)",
            Self::TrainingLog => "log of a training",
            Self::Labels => "labels",
        })
    }
}

fn contains(head: &[u8], part: &[u8]) -> bool {
    head.windows(part.len()).any(|window| window == part)
}

/// Read chunk by chunk, so that text in the pixels counts nothing.
fn is_picture(head: &[u8]) -> bool {
    let Some(mut rest) = head.strip_prefix(b"\x89PNG\r\n\x1a\n") else { return false };
    let wanted = [b"Software\0", SOFTWARE.as_bytes()].concat();
    while let Some((start, after)) = rest.split_first_chunk::<8>() {
        let n_bytes = u32::from_be_bytes([start[0], start[1], start[2], start[3]]) as usize;
        let Some(data) = after.get(..n_bytes) else { return false };
        if &start[4..] == b"tEXt" && data == wanted {
            return true;
        }
        // The checksum behind it.
        let Some(next) = after.get(n_bytes.saturating_add(4)..) else { return false };
        rest = next;
    }
    false
}

fn is_json(head: &[u8]) -> bool {
    // Only the beginning: the object may be longer than what was read.
    let start = &head[..head.len().min(200)];
    let text: Vec<u8> = start.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    text.starts_with(format!("{{\"generator\":\"{GENERATOR}").as_bytes())
}

/// The header record: opcode, length, then profile and library as texts with their lengths.
fn is_mcap(head: &[u8]) -> Option<bool> {
    let record = head.strip_prefix(b"\x89MCAP0\r\n")?.strip_prefix(&[1])?.get(8..)?;
    let text = |bytes: &[u8]| -> Option<usize> {
        let (length, _) = bytes.split_first_chunk::<4>()?;
        Some(4 + u32::from_le_bytes(*length) as usize)
    };
    let library = record.get(text(record)?..)?;
    Some(library.get(4..text(library)?)? == GENERATOR.as_bytes())
}

/// One that is still empty holds nothing that could be lost.
fn is_log(head: &[u8]) -> bool {
    if head.is_empty() {
        return true;
    }
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = serde_json::from_slice::<serde_json::Value>(line);
    line.is_ok_and(|line| line["step"].is_u64() && line.get("loss_mm").is_some())
}
