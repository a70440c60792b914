//! Files that appear whole or not at all, and whose making harms no file of others.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How names of files that are not whole yet begin and end; the process and a number stand between.
const BEGINNING: &str = ".forecloud-";
const END: &str = ".part";

/// Puts a file of these bytes in the place of `path`, even if the power fails: it is written beside
/// its place, brought to the disk, then renamed.
///
/// # Errors
/// Those of the system; nothing is left beside `path` then.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut unfinished = Unfinished::beside(path)?;
    unfinished.file.write_all(bytes)?;
    unfinished.finish(path)
}

/// A file that is written under another name beside its place, and gets its own at the end. It is gone
/// where that end does not come: with this value, with a signal that ends the process
/// ([`super::end_signal::clean_up_on_signals`]), else with the next file that Forecloud writes in the folder.
#[derive(Debug)]
pub struct Unfinished {
    /// Open for writing and reading; locked, so that others see that it is being written.
    pub file: File,
    /// Removes the file where it is still there.
    name: Passing,
}

impl Unfinished {
    /// A new file in the folder of `place`: of a name that nobody has, not even a link.
    ///
    /// # Errors
    /// Those of the system.
    pub fn beside(place: &Path) -> Result<Self> {
        let folder = folder_of(place);
        clean_once(folder);
        // No name comes twice: whoever is done with one may still remove it.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        loop {
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!("{BEGINNING}{}-{n}{END}", std::process::id()));
            // No signal comes between the file and the note of it.
            let mut all = passing();
            let mut options = OpenOptions::new();
            match options.write(true).read(true).create_new(true).open(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                opened => {
                    let file = opened?;
                    all.insert(path.clone());
                    drop(all);
                    let name = Passing(path);
                    // Some network file systems have no locks: then nobody removes what is not locked.
                    let _ = file.try_lock();
                    // Removed before it was locked, by another process that took it for a leftover.
                    if name.0.exists() {
                        return Ok(Self { file, name });
                    }
                }
            }
        }
    }

    /// Brings the file to the disk and puts it in the place of whatever is at `place`.
    ///
    /// # Errors
    /// Those of the system; nothing is left then.
    pub fn finish(self, place: &Path) -> Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.name.0, place)?;
        // The name, too; not every file system can.
        let _ = File::open(folder_of(place)).and_then(|folder| folder.sync_all());
        Ok(())
    }

    /// As [`Unfinished::finish`], where nothing is at `place`; else the file comes back.
    ///
    /// # Errors
    /// As [`Unfinished::finish`].
    pub fn finish_new(self, place: &Path) -> Result<Option<Self>> {
        self.file.sync_all()?;
        match fs::hard_link(&self.name.0, place) {
            Ok(()) => Ok(None),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Some(self)),
            // File systems without links.
            Err(_) if fs::symlink_metadata(place).is_err() => self.finish(place).map(|()| None),
            Err(_) => Ok(Some(self)),
        }
    }
}

/// Files and folders that are there only while this process works, for the signal that ends it.
static PASSING: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn passing() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    PASSING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file, or a folder with all in it, that is removed with this value, or with a signal that ends the
/// process ([`super::end_signal::clean_up_on_signals`]).
#[derive(Debug)]
pub struct Passing(PathBuf);

impl Passing {
    /// Of what lies, or will lie, at `path`.
    pub fn new(path: PathBuf) -> Self {
        passing().insert(path.clone());
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        let mut all = passing();
        remove(&self.0);
        all.remove(&self.0);
    }
}

/// Removes all that is passing, and calls `end`, which is to end the process: nothing new begins to pass
/// meanwhile.
pub(super) fn remove_passing(end: impl FnOnce()) {
    let all = passing();
    all.iter().for_each(|path| remove(path));
    end();
}

/// What can't be removed is only in the way.
fn remove(path: &Path) {
    let _ = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => Ok(()),
    };
}

/// Removes leftovers in a folder, the first time that this process writes there.
fn clean_once(folder: &Path) {
    static CLEANED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let mut cleaned = CLEANED.lock().unwrap_or_else(PoisonError::into_inner);
    if cleaned.insert(folder.to_owned()) {
        remove_unfinished(folder);
    }
}

/// The bytes of a file, of `most` at most: whatever size it says it has, as pipes and devices say none.
///
/// # Errors
/// Those of the system; [`ErrorKind::FileTooLarge`] if there are more.
pub fn read_at_most(path: &Path, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(Error::new(ErrorKind::FileTooLarge, format!("more than {most} bytes"))),
        false => Ok(bytes),
    }
}

/// Removes what processes left in `folder` that were killed while they wrote: what no living one has locked.
pub fn remove_unfinished(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if !is_file || !entry.file_name().to_str().is_some_and(is_unfinished) {
            continue;
        }
        let path = entry.path();
        if File::open(&path).is_ok_and(|file| file.try_lock().is_ok()) {
            remove(&path);
        }
    }
}

/// Whether [`Unfinished::beside`] gives this name in another process.
fn is_unfinished(name: &str) -> bool {
    let numbers = name.strip_prefix(BEGINNING).and_then(|rest| rest.strip_suffix(END));
    let numbers = numbers.and_then(|numbers| numbers.split_once('-'));
    let is_number = |text: &str| text.parse::<u64>().is_ok();
    // Its own, this process removes itself; file systems that have a lock for a process can't tell.
    let is_own = |process: &str| process == std::process::id().to_string();
    numbers.is_some_and(|(process, n)| is_number(process) && is_number(n) && !is_own(process))
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_beside_it_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("precious"), "theirs").unwrap();
        // The next ones: other tests take some of them.
        let number = |file: &Unfinished| -> Option<u64> {
            file.name.path().file_stem()?.to_str()?.rsplit('-').next()?.parse().ok()
        };
        let first = number(&Unfinished::beside(&at("x")).unwrap()).unwrap();
        let name = |n: u64| format!(".forecloud-{}-{n}.part", std::process::id());
        let taken: Vec<String> = (first + 1..first + 4).map(name).collect();
        for name in ["plan.json.part", "plan.json.unfinished"] {
            fs::write(at(name), "theirs").unwrap();
        }
        for taken in &taken {
            #[cfg(unix)]
            std::os::unix::fs::symlink(at("precious"), at(taken)).unwrap();
            #[cfg(not(unix))]
            fs::write(at(taken), "theirs").unwrap();
        }
        for text in ["first", "second"] {
            replace(&at("plan.json"), text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(at("plan.json")).unwrap(), text);
        }
        let names = ["precious", "plan.json.part", "plan.json.unfinished"];
        for name in names.into_iter().chain(taken.iter().map(String::as_str)) {
            assert_eq!(fs::read_to_string(at(name)).unwrap(), "theirs", "{name}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4 + taken.len());
    }

    #[test]
    fn no_more_is_read_than_asked_for_whatever_size_a_file_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "12345").unwrap();
        assert_eq!(read_at_most(&path, 5).unwrap(), b"12345");
        let failed = |path: &Path| read_at_most(path, 4).unwrap_err().kind();
        assert_eq!(failed(&path), ErrorKind::FileTooLarge);
        // It has no end, and says 0 bytes.
        #[cfg(unix)]
        assert_eq!(failed(Path::new("/dev/zero")), ErrorKind::FileTooLarge);
    }

    #[test]
    fn nothing_is_left_where_it_fails() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("taken");
        fs::create_dir(&place).unwrap();
        assert!(replace(&place, b"text").is_err(), "a folder is not replaced");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_given_up_leaves_nothing_and_what_is_there_stays() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("a");
        drop(Unfinished::beside(&place).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let write = |text: &str| {
            let mut file = Unfinished::beside(&place).unwrap();
            file.file.write_all(text.as_bytes()).unwrap();
            file
        };
        assert!(write("first").finish_new(&place).unwrap().is_none());
        let second = write("second").finish_new(&place).unwrap().expect("the place is taken");
        assert_eq!(fs::read_to_string(&place).unwrap(), "first");
        second.finish(&place).unwrap();
        assert_eq!(fs::read_to_string(&place).unwrap(), "second");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_next_file_in_a_folder_clears_leftovers_but_nothing_that_is_being_written() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at(".forecloud-7-0.part"), "left").unwrap();
        let written = File::create(at(".forecloud-8-0.part")).unwrap();
        written.try_lock().unwrap();
        replace(&at("a"), b"text").unwrap();
        assert!(!at(".forecloud-7-0.part").exists() && at(".forecloud-8-0.part").exists());
        drop(written);
        remove_unfinished(folder.path());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_passes_goes_with_all_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let passing = Passing::new(folder.path().join("stage"));
        fs::create_dir(passing.path()).unwrap();
        fs::write(passing.path().join("a"), "text").unwrap();
        drop(passing);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let names =
            [".forecloud-x-0.part", ".forecloud-7.part", ".forecloud-7-0.part.mine", "a.part"];
        for name in names.into_iter().chain([".forecloud-7-0.part"]) {
            fs::write(folder.path().join(name), "text").unwrap();
        }
        fs::create_dir(folder.path().join(".forecloud-8-0.part")).unwrap();
        remove_unfinished(folder.path());
        assert!(!folder.path().join(".forecloud-7-0.part").exists());
        assert!(names.iter().all(|name| folder.path().join(name).exists()));
        assert!(folder.path().join(".forecloud-8-0.part").exists(), "a folder is none of ours");
    }
}
