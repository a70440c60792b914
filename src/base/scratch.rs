//! Intermediate numbers, in memory that each thread keeps.

use std::cell::Cell;

thread_local! {
    /// Those that are not in use, the outermost last.
    static FREE: Cell<Vec<Vec<f32>>> = const { Cell::new(Vec::new()) };
}

/// Numbers of a line of the cache: where scratch begins, so that rows of as many lie in one line each.
const LINE: usize = 16;

/// Runs `f` with `len` numbers of no known value; `f` may do so again.
pub fn with_scratch<R>(len: usize, f: impl FnOnce(&mut [f32]) -> R) -> R {
    let mut free = FREE.take();
    let mut scratch = free.pop().unwrap_or_default();
    FREE.set(free);
    if scratch.len() < len + LINE {
        scratch.resize(len + LINE, 0.0);
    }
    let first = scratch.as_ptr().align_offset(4 * LINE).min(LINE);
    let result = f(&mut scratch[first..first + len]);
    let mut free = FREE.take();
    free.push(scratch);
    FREE.set(free);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_scratch_is_apart_and_kept() {
        let run = |outer: usize, inner: usize| {
            with_scratch(outer, |a| {
                a.fill(1.0);
                let b = with_scratch(inner, |b| {
                    b.fill(2.0);
                    b.as_ptr()
                });
                assert!(a.iter().all(|&a| a == 1.0));
                (a.as_ptr(), b)
            })
        };
        let first = run(5, 7);
        assert!(first == run(4, 7) && first == run(5, 1), "no new memory");
    }
}
