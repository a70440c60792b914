//! What lies beside the repository, for tests that pass without it and say so.

#![allow(dead_code)] // each test uses some of it

use std::io::Write;
use std::path::{Path, PathBuf};

/// The file or folder of that name in `../shared`, if that is there.
pub fn shared(name: &str) -> Option<PathBuf> {
    let path = Path::new(crate::ROOT).join("../shared").join(name);
    if !path.exists() {
        skipped("../shared is not there");
        return None;
    }
    Some(path)
}

/// Says why a test does not run; past the test harness, which keeps what passing tests print.
pub fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}
