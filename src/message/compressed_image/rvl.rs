//! RVL depth images (Wilson, "Fast Lossless Depth Image Compression", 2017).
//!
//! Width and height, then by turns: how many zeros follow, how many other values follow, and the
//! differences between those. All are numbers of a variable count of nibbles.

use super::{Pixels, check_size};

/// Gives 16UC1.
pub(super) fn decode(data: &[u8]) -> Result<Pixels, String> {
    let word = |at: usize| Some(u32::from_le_bytes(data.get(at..at + 4)?.try_into().ok()?));
    let (Some(width), Some(height)) = (word(0), word(4)) else {
        return Err(format!("RVL: {} bytes, the header alone has 8", data.len()));
    };
    // A run of zeros takes a few nibbles, however long it is: any count of pixels a byte.
    check_size([width, height], data.len(), u64::MAX).map_err(|error| format!("RVL: {error}"))?;
    let mut stream = Nibbles { words: data[8..].chunks_exact(4), word: 0, n_left: 0 };
    let values = values(&mut stream, width as usize * height as usize)
        .ok_or_else(|| format!("RVL: ends early, or holds more than {width} x {height} pixels"))?;
    Ok(Pixels { size: [width, height], encoding: "16UC1", data: values })
}

/// `n_values` in little-endian order; `None` if the stream holds fewer, or a run that is longer.
fn values(stream: &mut Nibbles, n_values: usize) -> Option<Vec<u8>> {
    let mut values = Vec::with_capacity(2 * n_values);
    let mut previous = 0u16;
    while values.len() < 2 * n_values {
        let n_left = n_values - values.len() / 2;
        let n_zeros = stream.number()? as usize;
        let n_others = stream.number()? as usize;
        if n_zeros + n_others > n_left {
            return None;
        }
        values.resize(values.len() + 2 * n_zeros, 0);
        for _ in 0..n_others {
            let number = stream.number()?;
            // The lowest bit is the sign: 0, -1, 1, -2, …
            let difference = (number >> 1) ^ (number & 1).wrapping_neg();
            previous = previous.wrapping_add(difference as u16);
            values.extend(previous.to_le_bytes());
        }
    }
    Some(values)
}

/// Nibbles of little-endian words of 32 bits, from the highest on.
struct Nibbles<'a> {
    words: std::slice::ChunksExact<'a, u8>,
    word: u32,
    n_left: u32,
}

impl Nibbles<'_> {
    /// Three bits a nibble, the lowest first; the fourth says that more follow.
    fn number(&mut self) -> Option<u32> {
        let mut number = 0;
        for shift in (0..30).step_by(3) {
            let nibble = self.next()?;
            number |= (nibble & 7) << shift;
            if nibble & 8 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn next(&mut self) -> Option<u32> {
        if self.n_left == 0 {
            self.word = u32::from_le_bytes(self.words.next()?.try_into().ok()?);
            self.n_left = 8;
        }
        self.n_left -= 1;
        self.word = self.word.rotate_left(4);
        Some(self.word & 15)
    }
}
