//! One matrix shared by parallel tasks, each of which writes rows of its own.

use std::marker::PhantomData;
use std::ops::Range;

/// A mutable row-major matrix that tasks split by rows among themselves.
///
/// Chunks of several matrices are needed at once, of some of them all rows to read: more than
/// `par_chunks_mut` and its zips can say readably.
pub struct SharedRows<'a, T = f32> {
    data: *mut T,
    width: usize,
    n_rows: usize,
    _borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: access goes through the unsafe methods below, whose callers keep rows disjoint.
unsafe impl<T: Send + Sync> Sync for SharedRows<'_, T> {}
// SAFETY: as above; the borrow keeps the matrix alive.
unsafe impl<T: Send> Send for SharedRows<'_, T> {}

impl<'a, T> SharedRows<'a, T> {
    /// Shares `data`, rows of `width` numbers.
    pub fn new(data: &'a mut [T], width: usize) -> Self {
        let n_rows = data.len() / width.max(1);
        Self { data: data.as_mut_ptr(), width, n_rows, _borrow: PhantomData }
    }

    /// True if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.n_rows == 0
    }

    /// Rows `range` to write.
    ///
    /// # Safety
    /// No other live reference may cover any of these rows.
    ///
    /// # Panics
    /// If `range` ends behind the last row.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn rows_mut(&self, range: Range<usize>) -> &'a mut [T] {
        let len = self.checked_len(&range);
        // SAFETY: `start..start + len` lies in the borrowed matrix; disjointness is the caller's.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(range.start * self.width), len) }
    }

    /// Rows `range` to read.
    ///
    /// # Safety
    /// No live mutable reference may cover any of these rows.
    ///
    /// # Panics
    /// If `range` ends behind the last row.
    #[inline]
    pub unsafe fn rows(&self, range: Range<usize>) -> &'a [T] {
        let len = self.checked_len(&range);
        // SAFETY: `start..start + len` lies in the borrowed matrix; that nobody writes it is the
        // caller's.
        unsafe { std::slice::from_raw_parts(self.data.add(range.start * self.width), len) }
    }

    /// Numbers in rows `range`, which must lie in the matrix.
    #[inline]
    fn checked_len(&self, range: &Range<usize>) -> usize {
        assert!(range.start <= range.end && range.end <= self.n_rows, "rows {range:?}");
        (range.end - range.start) * self.width
    }

    /// All rows, to write.
    ///
    /// # Safety
    /// No other live reference may cover any row.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn all_mut(&self) -> &'a mut [T] {
        // SAFETY: the caller's.
        unsafe { self.rows_mut(0..self.n_rows) }
    }

    /// All rows, to read.
    ///
    /// # Safety
    /// No live mutable reference may cover any row.
    #[inline]
    pub unsafe fn all(&self) -> &'a [T] {
        // SAFETY: the caller's.
        unsafe { self.rows(0..self.n_rows) }
    }
}
