//! Launches of kernels: what they are given is held to what they take.

use std::ffi::c_void;

use cudarc::driver::result;

use super::Gpu;
use super::kernels::{
    CloudBuffers, Dense, DrawBuffers, Grid, Kernel, LoadsBuffers, SHARED_BYTES, number,
};
use super::memory::Buffer;
use super::tokens::PassBuffers;
use crate::{Error, Result};

/// Threads that every card's blocks can have.
const MAX_BLOCK: usize = 1024;
/// Arguments that a kernel takes at most.
const MAX_ARGUMENTS: usize = 8;

/// A type of argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parameter {
    Number,
    Address,
    Grid,
    Pass,
    Cloud,
    Draw,
    Loads,
    Dense,
}

/// A value of such a type.
#[derive(Debug, Clone, Copy)]
pub(super) enum Argument<'a> {
    Number(u32),
    Address(u64),
    Grid(&'a Grid),
    Pass(&'a PassBuffers),
    Cloud(&'a CloudBuffers),
    Draw(&'a DrawBuffers),
    Loads(&'a LoadsBuffers),
    Dense(&'a Dense),
}

impl Argument<'_> {
    fn parameter(&self) -> Parameter {
        match self {
            Self::Number(_) => Parameter::Number,
            Self::Address(_) => Parameter::Address,
            Self::Grid(_) => Parameter::Grid,
            Self::Pass(_) => Parameter::Pass,
            Self::Cloud(_) => Parameter::Cloud,
            Self::Draw(_) => Parameter::Draw,
            Self::Loads(_) => Parameter::Loads,
            Self::Dense(_) => Parameter::Dense,
        }
    }

    /// Where the value lies.
    fn pointer(&self) -> *mut c_void {
        fn of<T>(value: &T) -> *mut c_void {
            std::ptr::from_ref(value).cast_mut().cast()
        }
        match self {
            Self::Number(value) => of(value),
            Self::Address(value) => of(value),
            Self::Grid(value) => of(*value),
            Self::Pass(value) => of(*value),
            Self::Cloud(value) => of(*value),
            Self::Draw(value) => of(*value),
            Self::Loads(value) => of(*value),
            Self::Dense(value) => of(*value),
        }
    }
}

impl<T> From<Buffer<T>> for Argument<'_> {
    fn from(buffer: Buffer<T>) -> Self {
        Self::Address(buffer.address())
    }
}

impl From<usize> for Argument<'_> {
    fn from(size: usize) -> Self {
        Self::Number(number(size))
    }
}

macro_rules! by_reference {
    ($($Name:ident($Type:ty)),*) => {
        $(impl<'a> From<&'a $Type> for Argument<'a> {
            fn from(value: &'a $Type) -> Self {
                Self::$Name(value)
            }
        })*
    };
}
by_reference!(
    Grid(Grid),
    Pass(PassBuffers),
    Cloud(CloudBuffers),
    Draw(DrawBuffers),
    Loads(LoadsBuffers),
    Dense(Dense)
);

impl Gpu {
    /// Launches `kernel` on the stream; nothing where there are no blocks.
    ///
    /// # Errors
    /// [`Error::Device`] if it takes other arguments or smaller blocks than these, and of the driver.
    ///
    /// # Safety
    /// What the arguments' addresses lead to on the device outlives the launch, and is as long as
    /// the kernel's comment says for these sizes.
    pub(super) unsafe fn launch(
        &self,
        kernel: Kernel,
        [x, y]: [usize; 2],
        block: usize,
        shared_bytes: usize,
        arguments: &[Argument<'_>],
    ) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.launch_scenes(kernel, [x, y, 1], block, shared_bytes, arguments) }
    }

    /// The same with blocks of several scenes, which are the last dimension.
    ///
    /// # Errors
    /// As [`Gpu::launch`].
    ///
    /// # Safety
    /// As [`Gpu::launch`].
    pub(super) unsafe fn launch_scenes(
        &self,
        kernel: Kernel,
        grid: [usize; 3],
        block: usize,
        shared_bytes: usize,
        arguments: &[Argument<'_>],
    ) -> Result<()> {
        if grid.contains(&0) {
            return Ok(());
        }
        let types = || arguments.iter().map(Argument::parameter);
        let fits = types().eq(kernel.parameters().iter().copied())
            && arguments.len() <= MAX_ARGUMENTS
            && (1..=MAX_BLOCK).contains(&block)
            && shared_bytes <= SHARED_BYTES;
        if !fits {
            let (name, given) = (kernel.name(), types().collect::<Vec<_>>());
            let problem = format!(
                "{name} takes {:?}, {MAX_BLOCK} threads and {SHARED_BYTES} bytes at most, not \
                 {given:?}, {block} and {shared_bytes}: a fault of this program, please report it",
                kernel.parameters()
            );
            return Err(Error::Device { device: self.name().to_owned(), problem });
        }
        let mut pointers = [std::ptr::null_mut(); MAX_ARGUMENTS];
        for (pointer, argument) in pointers.iter_mut().zip(arguments) {
            *pointer = argument.pointer();
        }
        let pointers = &mut pointers[..arguments.len()];
        let (function, stream) = (self.function(kernel), self.stream.cu_stream());
        let grid = (number(grid[0]), number(grid[1]), number(grid[2]));
        let (block, shared_bytes) = ((number(block), 1, 1), number(shared_bytes));
        // SAFETY: the function is of this context's module; `pointers` are as many as it takes, to
        // values of its types that live until the driver has copied them; the rest is the caller's.
        unsafe { result::launch_kernel(function, grid, block, shared_bytes, stream, pointers) }
            .map_err(|error| self.error(kernel.name(), error))
    }
}
