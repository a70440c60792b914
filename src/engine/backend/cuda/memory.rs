//! Memory of the device and pinned memory of the host, each allocated in one piece and kept.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::Arc;

use cudarc::driver::{result, sys};

use super::Gpu;
use crate::Result;

/// What pieces of an arena begin at a multiple of, in bytes: that of the driver's own allocations.
const ALIGNMENT: usize = 256;

/// Numbers in device memory: an address that kernels take, and how many there are.
#[derive(Debug)]
pub(super) struct Buffer<T> {
    address: sys::CUdeviceptr,
    len: usize,
    kind: PhantomData<*mut T>,
}

impl<T> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Buffer<T> {}

impl<T> Default for Buffer<T> {
    fn default() -> Self {
        Self { address: 0, len: 0, kind: PhantomData }
    }
}

// SAFETY: an address is a number.
unsafe impl<T> Send for Buffer<T> {}

impl<T> Buffer<T> {
    /// What a kernel takes.
    pub fn address(self) -> u64 {
        self.address
    }

    /// The same, and 0 where there are no numbers.
    pub fn address_or_none(self) -> u64 {
        if self.len == 0 { 0 } else { self.address }
    }

    /// How many numbers there are.
    pub fn len(self) -> usize {
        self.len
    }

    /// Numbers `first..first + len`, which must be within.
    pub fn part(self, first: usize, len: usize) -> Self {
        assert!(first + len <= self.len, "a part within its buffer");
        Self { address: self.address + (first * size_of::<T>()) as u64, len, kind: PhantomData }
    }
}

/// Hands out places one behind the other, first to count the bytes, then in an arena.
#[derive(Debug, Default)]
pub(super) struct Places {
    base: sys::CUdeviceptr,
    used: usize,
}

impl Places {
    /// A place for `len` numbers.
    pub fn take<T>(&mut self, len: usize) -> Buffer<T> {
        let start = self.used.next_multiple_of(ALIGNMENT);
        self.used = start.saturating_add(len.saturating_mul(size_of::<T>()));
        Buffer { address: self.base.wrapping_add(start as u64), len, kind: PhantomData }
    }
}

/// One allocation of device memory.
#[derive(Debug)]
pub(super) struct Arena {
    gpu: Arc<Gpu>,
    address: sys::CUdeviceptr,
    bytes: usize,
    has_run_out: bool,
}

impl Arena {
    /// Nothing yet.
    pub fn new(gpu: Arc<Gpu>) -> Self {
        Self { gpu, address: 0, bytes: 0, has_run_out: false }
    }

    /// Lays out buffers by `take`, in new memory if there is too little; their contents are undefined.
    /// Whether the memory is new.
    ///
    /// # Errors
    /// [`crate::Error::Device`] if there is not so much memory; the arena is empty then.
    pub fn lay_out<B>(&mut self, take: impl Fn(&mut Places) -> B) -> Result<(B, bool)> {
        let mut places = Places::default();
        take(&mut places);
        let needed = places.used.max(1);
        let grows = needed > self.bytes;
        self.has_run_out = false;
        if grows {
            self.free();
            self.gpu.bind()?;
            // SAFETY: the context is bound; freed by `free`.
            let allocated = unsafe { result::malloc_sync(needed) };
            let code = allocated.as_ref().err().map(|error| error.0);
            self.has_run_out = code == Some(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY);
            self.address = allocated.map_err(|error| {
                let doing = format!("allocating {:.1} MB", needed as f64 / 1e6);
                self.gpu.error(&doing, error)
            })?;
            self.bytes = needed;
        }
        Ok((take(&mut Places { base: self.address, used: 0 }), grows))
    }

    /// Whether the device had no room for what was last asked for.
    pub fn has_run_out(&self) -> bool {
        self.has_run_out
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn free(&mut self) {
        if self.bytes > 0 {
            let context = &self.gpu.context;
            // What was begun may still use it; errors mean that the card is lost, and its memory too.
            let _ = self.gpu.synchronize();
            context.record_err(context.bind_to_thread());
            // SAFETY: allocated by `lay_out`, freed once, and nothing runs on it any more.
            context.record_err(unsafe { result::free_sync(self.address) });
        }
        (self.address, self.bytes) = (0, 0);
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        self.free();
    }
}

/// Numbers in pinned host memory, which copies reach without a detour.
#[derive(Debug)]
pub(super) struct Pinned<T> {
    gpu: Arc<Gpu>,
    numbers: *mut T,
    len: usize,
}

// SAFETY: owns its memory, as a Vec does.
unsafe impl<T: Send> Send for Pinned<T> {}

impl<T: Copy + Default> Pinned<T> {
    /// Nothing yet.
    pub fn new(gpu: Arc<Gpu>) -> Self {
        Self { gpu, numbers: std::ptr::null_mut(), len: 0 }
    }

    /// Makes room for `len` numbers, all zero if it had to grow, and says whether it had to.
    ///
    /// # Errors
    /// [`crate::Error::Device`] if there is not so much memory.
    pub fn reserve(&mut self, len: usize) -> Result<bool> {
        if len <= self.len {
            return Ok(false);
        }
        self.free();
        self.gpu.bind()?;
        let bytes = len.saturating_mul(size_of::<T>());
        // SAFETY: the context is bound; freed by `free`. Cached, as it is read too.
        let allocated = unsafe { result::malloc_host(bytes, sys::CU_MEMHOSTALLOC_PORTABLE) };
        let allocated =
            allocated.map_err(|error| self.gpu.error("allocating pinned memory", error))?;
        self.numbers = allocated.cast();
        // SAFETY: `len` numbers were allocated.
        (0..len).for_each(|i| unsafe { self.numbers.add(i).write(T::default()) });
        self.len = len;
        Ok(true)
    }

    /// The first `len` numbers.
    pub fn get(&self, len: usize) -> &[T] {
        assert!(len <= self.len, "within what was reserved");
        if len == 0 {
            return &[];
        }
        // SAFETY: `reserve` allocated and wrote as many.
        unsafe { std::slice::from_raw_parts(self.numbers, len) }
    }

    /// The first `len` numbers, to write.
    pub fn get_mut(&mut self, len: usize) -> &mut [T] {
        assert!(len <= self.len, "within what was reserved");
        if len == 0 {
            return &mut [];
        }
        // SAFETY: as above; borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.numbers, len) }
    }
}

impl<T> Pinned<T> {
    fn free(&mut self) {
        if self.len > 0 {
            let context = &self.gpu.context;
            let _ = self.gpu.synchronize();
            context.record_err(context.bind_to_thread());
            // SAFETY: allocated by `reserve`, freed once; no copy is under way.
            context.record_err(unsafe { result::free_host(self.numbers.cast::<c_void>()) });
        }
        (self.numbers, self.len) = (std::ptr::null_mut(), 0);
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        self.free();
    }
}

impl Gpu {
    /// Begins to copy the first numbers of `from` to `to`, as many as fit.
    pub(super) fn upload<T: Copy + Default>(&self, from: &Pinned<T>, to: Buffer<T>) -> Result<()> {
        let from = from.get(to.len());
        if from.is_empty() {
            return Ok(());
        }
        // SAFETY: `to` holds as many numbers; pinned memory waits for the stream before it goes.
        unsafe { result::memcpy_htod_async(to.address, from, self.stream.cu_stream()) }
            .map_err(|error| self.error("copying to it", error))
    }

    /// Begins to copy `from` to the first numbers of `to`.
    pub(super) fn download<T: Copy + Default>(
        &self,
        from: Buffer<T>,
        to: &mut Pinned<T>,
    ) -> Result<()> {
        let to = to.get_mut(from.len());
        if to.is_empty() {
            return Ok(());
        }
        // SAFETY: as above, the other way round.
        unsafe { result::memcpy_dtoh_async(to, from.address, self.stream.cu_stream()) }
            .map_err(|error| self.error("copying from it", error))
    }

    /// Begins to set all numbers of `buffer` to zero.
    pub(super) fn clear<T>(&self, buffer: Buffer<T>) -> Result<()> {
        let bytes = buffer.len() * size_of::<T>();
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the buffer's bytes.
        unsafe { result::memset_d8_async(buffer.address, 0, bytes, self.stream.cu_stream()) }
            .map_err(|error| self.error("clearing its memory", error))
    }
}
