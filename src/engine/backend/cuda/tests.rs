//! Every kernel against the CPU's operation, on a GPU or on the stand-in.

mod batch;
mod errors;
mod graph;
mod layers;
mod measure;
mod rollout;
mod sampler;
mod tokens;
mod unsupported;

use std::sync::Arc;

use super::memory::{Arena, Buffer, Pinned};
use super::{Gpu, standin};

/// Card 0, of the machine or of the stand-in.
fn gpu() -> Arc<Gpu> {
    open(0)
}

/// Card `ordinal`.
fn open(ordinal: usize) -> Arc<Gpu> {
    standin::load();
    Arc::new(Gpu::open(ordinal).unwrap())
}

/// Whether cards in which something is wrong are there; says so if they are not.
fn has_faulty_cards() -> bool {
    let is_standin = standin::load();
    if !is_standin {
        println!("skipped: only the stand-in has faulty cards, and this machine has a GPU");
    }
    is_standin
}

/// Device memory of a test: buffers with what the test put there.
struct Memory {
    gpu: Arc<Gpu>,
    arenas: Vec<Arena>,
}

impl Memory {
    fn new() -> Self {
        Self { gpu: gpu(), arenas: Vec::new() }
    }

    /// A buffer of `len` numbers of no known value, in an allocation of its own: the sanitizer sees
    /// accesses beyond it.
    fn empty<T>(&mut self, len: usize) -> Buffer<T> {
        let mut arena = Arena::new(self.gpu.clone());
        let (buffer, _) = arena.lay_out(|places| places.take(len)).unwrap();
        self.arenas.push(arena);
        buffer
    }

    fn put<T: Copy + Default>(&mut self, numbers: &[T]) -> Buffer<T> {
        let buffer = self.empty(numbers.len());
        let mut pinned = Pinned::new(self.gpu.clone());
        pinned.reserve(numbers.len()).unwrap();
        pinned.get_mut(numbers.len()).copy_from_slice(numbers);
        self.gpu.upload(&pinned, buffer).unwrap();
        self.gpu.synchronize().unwrap();
        buffer
    }

    fn get<T: Copy + Default>(&self, buffer: Buffer<T>) -> Vec<T> {
        let mut pinned = Pinned::new(self.gpu.clone());
        pinned.reserve(buffer.len()).unwrap();
        self.gpu.download(buffer, &mut pinned).unwrap();
        self.gpu.synchronize().unwrap();
        pinned.get(buffer.len()).to_vec()
    }
}
