//! Files that appear whole or not at all, and whose making harms no file of others.

use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::path::{Path, PathBuf};

/// How names of files that are not whole yet begin and end; the process and a number stand between.
const BEGINNING: &str = ".forecloud-";
const END: &str = ".part";

/// Puts a file of these bytes in the place of `path`, even if the power fails: it is written beside
/// its place, brought to the disk, then renamed.
///
/// # Errors
/// Those of the system; nothing is left beside `path` then.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let (unfinished, mut file) = beside(path)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.and_then(|()| fs::rename(&unfinished, path)).inspect_err(|_| {
        // On a full disk, its remains would only be in the way.
        let _ = fs::remove_file(&unfinished);
    })?;
    // The name, too; not every file system can.
    let _ = File::open(folder_of(path)).and_then(|folder| folder.sync_all());
    Ok(())
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

/// A new file in the folder of `path`: of a name that nobody has, not even a link.
fn beside(path: &Path) -> Result<(PathBuf, File)> {
    let mut n = 0u64;
    loop {
        let unfinished =
            folder_of(path).join(format!("{BEGINNING}{}-{n}{END}", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&unfinished) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => n += 1,
            opened => return Ok((unfinished, opened?)),
        }
    }
}

/// Removes what a process left in `folder` that was killed while it wrote; nobody may write there now.
pub fn remove_unfinished(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && entry.file_name().to_str().is_some_and(is_unfinished) {
            // What can't be removed is only in the way.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether [`beside`] gives this name.
fn is_unfinished(name: &str) -> bool {
    let numbers = name.strip_prefix(BEGINNING).and_then(|rest| rest.strip_suffix(END));
    let numbers = numbers.and_then(|numbers| numbers.split_once('-'));
    let is_number = |text: &str| text.parse::<u64>().is_ok();
    numbers.is_some_and(|(process, n)| is_number(process) && is_number(n))
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
        let taken = format!(".forecloud-{}-0.part", std::process::id());
        for name in ["plan.json.part", "plan.json.unfinished"] {
            fs::write(at(name), "theirs").unwrap();
        }
        #[cfg(unix)]
        std::os::unix::fs::symlink(at("precious"), at(&taken)).unwrap();
        #[cfg(not(unix))]
        fs::write(at(&taken), "theirs").unwrap();
        for text in ["first", "second"] {
            replace(&at("plan.json"), text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(at("plan.json")).unwrap(), text);
        }
        for name in ["precious", &taken, "plan.json.part", "plan.json.unfinished"] {
            assert_eq!(fs::read_to_string(at(name)).unwrap(), "theirs", "{name}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 5);
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
