//! What this process and its threads take of memory.
#![allow(dead_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The system's allocator, counted.
pub struct Counting;

static N_ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static N_BYTES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
    static OF_THREAD: Cell<u64> = const { Cell::new(0) };
}

fn note(size: usize) {
    N_ALLOCATIONS.fetch_add(1, Relaxed);
    N_BYTES.fetch_add(size as u64, Relaxed);
    // A thread that ends has no such value any more.
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(size)));
    let _ = OF_THREAD.try_with(|n_bytes| n_bytes.set(n_bytes.get() + size as u64));
}

// SAFETY: all is left to the system's allocator, with the same layouts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as the caller's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: as the caller's.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller's.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Allocations of all threads so far, and their bytes.
pub fn allocations() -> [u64; 2] {
    [N_ALLOCATIONS.load(Relaxed), N_BYTES.load(Relaxed)]
}

/// Bytes of the largest allocation that this thread makes in `f`.
pub fn largest_allocation<T>(f: impl FnOnce() -> T) -> (usize, T) {
    LARGEST.set(0);
    let result = f();
    (LARGEST.get(), result)
}

/// Bytes of all allocations that this thread makes in `f`.
pub fn allocated<T>(f: impl FnOnce() -> T) -> (u64, T) {
    let before = OF_THREAD.get();
    let result = f();
    (OF_THREAD.get() - before, result)
}

/// Resident memory of this process in bytes; none where the system has no `/proc`.
pub fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}
