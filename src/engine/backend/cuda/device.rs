//! Opening a GPU: driver, card, kernels. Whatever is missing is an error with a remedy, never a panic.

use std::ffi::CString;
use std::panic::catch_unwind;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUresult};
use cudarc::driver::{CudaContext, CudaStream, DriverError, result};

use super::kernels::Kernel;
use crate::{Error, Result};

/// Lowest driver: that of the CUDA version which the kernels are compiled by, as 1000 · major + 10 ·
/// minor. It is JetPack 6's.
const MIN_DRIVER: i32 = 12_020;
/// Lowest compute capability: that of the PTX.
const MIN_CAPABILITY: (i32, i32) = (8, 0);
/// Cards that the kernels are assembled for; others of the lowest capability or a newer one have the
/// driver compile the PTX, which takes a second at the first start.
const CUBINS: [((i32, i32), &[u8]); 2] = [
    ((8, 7), include_bytes!("built/forecloud.sm_87.cubin")),
    ((9, 0), include_bytes!("built/forecloud.sm_90.cubin")),
];
/// Ends with a zero byte, as the driver wants its text.
const PTX: &str = concat!(include_str!("built/forecloud.ptx"), "\0");

/// All functions of the driver that are called, here or by cudarc's part in it.
const FUNCTIONS: [&str; 34] = [
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuInit",
    "cuLaunchKernel",
    "cuMemAlloc_v2",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamSynchronize",
];

/// A GPU that is ready to run: context, one stream, and the kernels.
#[derive(Debug)]
pub struct Gpu {
    name: String,
    functions: [sys::CUfunction; Kernel::ALL.len()],
    // Dropped in this order.
    _module: Module,
    pub(super) stream: Arc<CudaStream>,
    pub(super) context: Arc<CudaContext>,
}

// SAFETY: function handles may be used from any thread; whoever launches binds the context first.
unsafe impl Send for Gpu {}
// SAFETY: as above; `&Gpu` changes nothing but through the driver, which is thread-safe.
unsafe impl Sync for Gpu {}

/// A loaded module, unloaded when dropped.
#[derive(Debug)]
struct Module {
    handle: sys::CUmodule,
    context: Arc<CudaContext>,
}

impl Drop for Module {
    fn drop(&mut self) {
        self.context.record_err(self.context.bind_to_thread());
        // SAFETY: loaded by `Gpu::load`, unloaded once; the context is the module's.
        self.context.record_err(unsafe { result::module::unload(self.handle) });
    }
}

impl Gpu {
    /// Opens card `ordinal`, as the driver counts them.
    ///
    /// # Errors
    /// [`Error::Device`] without a driver or such a card, or if either is too old.
    pub fn open(ordinal: usize) -> Result<Self> {
        // cudarc panics where libcuda lacks a function, also one that `FUNCTIONS` forgot.
        catch_unwind(|| Self::open_or_panic(ordinal)).unwrap_or_else(|_| {
            let problem =
                "its libcuda lacks functions: update NVIDIA's driver, or take device: cpu";
            Err(device_error(ordinal, problem))
        })
    }

    /// Cards that a driver knows, usable or not; 0 without a driver.
    pub fn count() -> usize {
        if !is_driver_there() || ["cuInit", "cuDeviceGetCount"].into_iter().any(is_lacking) {
            return 0;
        }
        let count = result::init().and_then(|()| result::device::get_count());
        count.ok().and_then(|n| usize::try_from(n).ok()).unwrap_or(0)
    }

    fn open_or_panic(ordinal: usize) -> Result<Self> {
        if !is_driver_there() {
            let problem = "no NVIDIA driver (libcuda.so) found: install it, or take device: cpu";
            return Err(device_error(ordinal, problem));
        }
        if let Some(name) = FUNCTIONS.into_iter().find(|name| is_lacking(name)) {
            let problem = format!(
                "libcuda lacks {name}: update NVIDIA's driver, or remove what calls itself so"
            );
            return Err(device_error(ordinal, problem));
        }
        let wrong = |error: DriverError| device_error(ordinal, describe(error));
        result::init().map_err(wrong)?;
        let mut version = 0;
        // SAFETY: writes one number.
        unsafe { sys::cuDriverGetVersion(&mut version) }.result().map_err(wrong)?;
        if version < MIN_DRIVER {
            let text = |version: i32| format!("{}.{}", version / 1000, version % 1000 / 10);
            let problem = format!(
                "the driver is for CUDA {}, {} or newer is needed: update it (JetPack 6 on a Jetson)",
                text(version),
                text(MIN_DRIVER)
            );
            return Err(device_error(ordinal, problem));
        }
        let n_cards = result::device::get_count().map_err(wrong)?;
        if ordinal >= usize::try_from(n_cards).unwrap_or(0) {
            let problem = format!("the driver knows {n_cards} cards, counted from 0");
            return Err(device_error(ordinal, problem));
        }
        let context = CudaContext::new(ordinal).map_err(wrong)?;
        // SAFETY: there is one stream, which orders everything.
        unsafe { context.disable_event_tracking() };
        Self::load(ordinal, context)
    }

    fn load(ordinal: usize, context: Arc<CudaContext>) -> Result<Self> {
        let wrong = |error: DriverError| device_error(ordinal, describe(error));
        let name = context.name().map_err(wrong)?;
        let capability = context.compute_capability().map_err(wrong)?;
        if capability < MIN_CAPABILITY {
            let ((major, minor), (least, least_minor)) = (capability, MIN_CAPABILITY);
            let problem = format!(
                "{name} has compute capability {major}.{minor}, {least}.{least_minor} is needed \
                 (Ampere, Orin or newer): take device: cpu"
            );
            return Err(device_error(ordinal, problem));
        }
        let cubin = CUBINS.iter().find(|(of, _)| *of == capability);
        let image = cubin.map_or(PTX.as_bytes(), |(_, image)| image);
        // SAFETY: a whole cubin, or PTX that ends with a zero byte.
        let handle = unsafe { result::module::load_data(image.as_ptr().cast()) }.map_err(wrong)?;
        let module = Module { handle, context: context.clone() };
        let mut functions = [std::ptr::null_mut(); Kernel::ALL.len()];
        for kernel in Kernel::ALL {
            let function_name = CString::new(kernel.name()).unwrap_or_default();
            // SAFETY: the module is loaded.
            let found = unsafe { result::module::get_function(handle, function_name) };
            functions[kernel as usize] = found.map_err(|error| {
                device_error(ordinal, format!("kernel {}: {}", kernel.name(), describe(error)))
            })?;
        }
        let stream = context.new_stream().map_err(wrong)?;
        let name = format!("cuda:{ordinal} ({name})");
        Ok(Self { name, functions, _module: module, stream, context })
    }

    /// The card with its name, as the driver tells it: `cuda:0 (Orin)`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// An error of the driver, at what was being done.
    pub(super) fn error(&self, doing: &str, error: DriverError) -> Error {
        Error::Device {
            device: self.name.clone(),
            problem: format!("{doing}: {}", describe(error)),
        }
    }

    /// Makes the card this thread's.
    pub(super) fn bind(&self) -> Result<()> {
        self.context.bind_to_thread().map_err(|error| self.error("binding", error))
    }

    /// Waits for all that was begun.
    pub(super) fn synchronize(&self) -> Result<()> {
        self.stream.synchronize().map_err(|error| self.error("waiting", error))
    }

    /// The function of a kernel.
    pub(super) fn function(&self, kernel: Kernel) -> sys::CUfunction {
        self.functions[kernel as usize]
    }
}

fn is_driver_there() -> bool {
    // SAFETY: opens libcuda, and closes it again.
    unsafe { sys::is_culib_present() }
}

/// Whether libcuda, which is there, lacks a function.
fn is_lacking(name: &str) -> bool {
    // SAFETY: looked up, not called.
    unsafe { sys::culib().get::<unsafe extern "C" fn()>(name.as_bytes()) }.is_err()
}

fn device_error(ordinal: usize, problem: impl Into<String>) -> Error {
    Error::Device { device: format!("cuda:{ordinal}"), problem: problem.into() }
}

/// What an error of the driver means, and what to do.
fn describe(error: DriverError) -> String {
    let text = error.error_string().map(|text| text.to_string_lossy().into_owned());
    let text = text.unwrap_or_else(|_| format!("{:?}", error.0));
    let remedy = match error.0 {
        CUresult::CUDA_ERROR_NO_DEVICE => ": check nvidia-smi and CUDA_VISIBLE_DEVICES",
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => ": take fewer particles, or end other programs on it",
        CUresult::CUDA_ERROR_STUB_LIBRARY => ": install NVIDIA's driver, not a stub of it",
        CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => ": reboot after a driver's update",
        CUresult::CUDA_ERROR_LAUNCH_FAILED
        | CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
        | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
        | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR => {
            ": the card is lost to this program, restart it; if that recurs, look at dmesg"
        }
        _ => "",
    };
    format!("{text}{remedy}")
}
