//! The folder that a run writes: one process at a time. What may be replaced in it is `outputs`' to say.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::say::say;
use forecloud::base::whole_file::remove_unfinished;

/// A folder that no other process writes as long as this lives; made if it was not there, and
/// removed again if nothing was written.
pub struct OutFolder {
    /// Folders that were made, the deepest first.
    made: Vec<PathBuf>,
    /// The folder itself: its lock is released when the process ends, however it does.
    _lock: File,
}

impl OutFolder {
    /// Makes or takes the folder.
    ///
    /// # Errors
    /// Says that it can't be written, or that another process writes it, and what to do.
    pub fn open(path: &Path) -> Result<Self> {
        let told = || refused(path);
        let missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let made = path.ancestors().take_while(missing).map(Path::to_owned).collect();
        std::fs::create_dir_all(path).with_context(told)?;
        let folder = Self { made, _lock: File::open(path).with_context(told)? };
        match folder._lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!(
                "{}: another run of forecloud is writing here: wait until it ends, or choose another \
                 --out",
                path.display()
            ),
            // Some network file systems have no locks.
            Err(TryLockError::Error(error)) => say(format_args!(
                "note: {} can't be locked ({error}): no other run may write there",
                path.display()
            )),
        }
        // Of no name: nobody's file is replaced.
        tempfile::tempfile_in(path).with_context(told)?;
        remove_unfinished(path);
        Ok(folder)
    }
}

/// What is said where the folder of --out can't be written to, before the reason.
pub fn refused(path: &Path) -> String {
    format!("cannot write into {}: choose another --out", path.display())
}

impl Drop for OutFolder {
    fn drop(&mut self) {
        // Fails, as it should, where something is in it.
        let _ = self.made.iter().try_for_each(std::fs::remove_dir);
    }
}

/// Moves the file at `path` beside its place, under the first free number; returns where it is now.
pub fn set_aside(path: &Path) -> Result<PathBuf> {
    let part = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().display().to_string();
    let (stem, extension) = (part(path.file_stem()), part(path.extension()));
    let named = |n: u32| path.with_file_name(format!("{stem}.{n}.{extension}"));
    let free = (1..u32::MAX).map(named).find(|to| std::fs::symlink_metadata(to).is_err());
    let free = free.with_context(|| format!("no free name beside {}", path.display()))?;
    std::fs::rename(path, &free).with_context(|| path.display().to_string())?;
    Ok(free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_one_process_s_and_goes_if_nothing_is_written() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a/b");
        let first = OutFolder::open(&path).unwrap();
        let told = format!("{:#}", OutFolder::open(&path).err().unwrap());
        assert!(told.contains("another run of forecloud") && told.contains("a/b"), "{told}");
        drop(first);
        assert!(!place.path().join("a").exists(), "it was made for nothing");
        let again = OutFolder::open(&path).unwrap();
        std::fs::write(path.join("kept"), "").unwrap();
        drop(again);
        assert!(path.join("kept").is_file());
        drop(OutFolder::open(&path).unwrap());
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1, "nothing is left in it");
    }

    #[test]
    fn what_is_set_aside_replaces_nothing() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("model.safetensors");
        for text in ["a", "b"] {
            std::fs::write(&path, text).unwrap();
            set_aside(&path).unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(place.path().join(name)).unwrap();
        assert_eq!(
            (read("model.1.safetensors"), read("model.2.safetensors")),
            ("a".into(), "b".into())
        );
        assert!(!path.exists());
    }
}
