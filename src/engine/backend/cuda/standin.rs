//! The stand-in driver of the tests: a libcuda of our own (`standin/driver.cpp`), compiled when a test
//! asks for it. Nothing of it is part of Forecloud.

use std::ffi::{CString, c_char, c_int, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
}

/// Symbols are bound at once, and stay.
const RTLD_NOW: c_int = 2;

/// Whether this machine has an NVIDIA GPU: the tests run on it then.
pub fn has_gpu() -> bool {
    ["/dev/nvidiactl", "/dev/nvhost-gpu", "/dev/nvgpu"].iter().any(|path| Path::new(path).exists())
}

/// Makes the stand-in this process's libcuda, unless there is a GPU. Says whether it did.
pub fn load() -> bool {
    static LOADED: OnceLock<bool> = OnceLock::new();
    *LOADED.get_or_init(|| {
        if has_gpu() {
            return false;
        }
        let path = CString::new(library().as_os_str().as_bytes()).unwrap();
        // SAFETY: a path that ends with zero. The library's name (soname) is that by which libcuda is
        // looked for first, so that it is found again.
        assert!(!unsafe { dlopen(path.as_ptr(), RTLD_NOW) }.is_null(), "the stand-in loads");
        true
    })
}

/// The stand-in, compiled where its sources or flags are new. FORECLOUD_STANDIN_FLAGS: more flags,
/// such as those of a sanitizer.
pub fn library() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let roots = package.ancestors().map(|root| root.join("src/engine/backend/cuda"));
        let here = roots.into_iter().find(|here| here.exists()).unwrap();
        let more = std::env::var("FORECLOUD_STANDIN_FLAGS").unwrap_or_default();
        let mut hasher = DefaultHasher::new();
        more.hash(&mut hasher);
        for folder in ["kernels", "standin"] {
            let mut files: Vec<PathBuf> =
                std::fs::read_dir(here.join(folder)).unwrap().map(|f| f.unwrap().path()).collect();
            files.sort();
            files.iter().for_each(|file| std::fs::read(file).unwrap().hash(&mut hasher));
        }
        let test = std::env::current_exe().unwrap();
        let folder = test.parent().unwrap().join(format!("standin-{:016x}", hasher.finish()));
        let library = folder.join("libcuda.so");
        if !library.exists() {
            std::fs::create_dir_all(&folder).unwrap();
            // Renamed when whole: other tests may be compiling it as well.
            let unfinished = folder.join(format!("{}.so", std::process::id()));
            compile(&here.join("standin"), &more, &unfinished);
            std::fs::rename(&unfinished, &library).unwrap();
        }
        library
    })
}

fn compile(folder: &Path, more: &str, to: &Path) {
    // `-ffp-contract=off`: __fmul_rn and __fadd_rn are never to be fused.
    let flags = "-std=c++17 -O1 -g -fPIC -shared -fvisibility=hidden -ffp-contract=off -Wall -Wextra \
                 -Werror -Wno-unknown-pragmas -Wl,-soname,libcuda.so";
    let compiled = Command::new(std::env::var("CXX").unwrap_or("c++".into()))
        .args(flags.split_whitespace().chain(more.split_whitespace()))
        .arg("-I")
        .arg(folder)
        .arg("-o")
        .args([to, &folder.join("driver.cpp")])
        .output()
        .expect("a C++ compiler (c++, or CXX) for the tests of the CUDA kernels");
    let said = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "the stand-in driver does not compile:\n{said}");
}
