//! The one door through which results reach the disk: nothing is lost by writing them.
//!
//! A file that is there is replaced only if Forecloud wrote it, which its first bytes tell, and
//! never if it is an input, by whatever name or link. What is written appears whole or not at all.

mod kind;
#[cfg(test)]
mod tests;

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use forecloud::base::whole_file;
use forecloud::{Error, Result};

pub use kind::{GENERATOR, Kind, LABELS, PLOT, SOFTWARE};

/// Bytes of a file that are looked at to tell whose it is.
const HEAD_BYTES: u64 = 1 << 20;
/// Files of a folder of inputs that are known by their identity, and how deep they may lie.
const MAX_FILES: usize = 100_000;
const MAX_DEPTH: usize = 3;

/// Files and folders that a command reads, and so never writes to.
#[derive(Debug, Clone, Default)]
pub struct Outputs {
    inputs: Vec<(Identity, PathBuf)>,
}

/// A file that is written under another name and takes its place at the end.
#[derive(Debug)]
pub struct Unfinished {
    file: whole_file::Unfinished,
    place: PathBuf,
    kind: Kind,
}

/// What a file or folder is, whatever its name: device and number on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity(u64, u64);

/// What a path leads to.
enum Target {
    /// A regular file, or none yet: its place, links followed.
    File { place: PathBuf, exists: bool },
    /// A device or a pipe: it is written to, not replaced.
    Stream,
}

impl Outputs {
    /// Takes files that are read, or folders of such: they are not written to from now on.
    ///
    /// What does not exist is passed over: whoever reads it tells.
    pub fn protect<P: AsRef<Path>>(mut self, inputs: impl IntoIterator<Item = P>) -> Self {
        for input in inputs {
            self.add(input.as_ref(), 0);
        }
        self
    }

    fn add(&mut self, path: &Path, depth: usize) {
        let Ok(found) = fs::metadata(path) else { return };
        self.inputs.push((Identity::of(path, &found), path.to_owned()));
        if !found.is_dir() || depth == MAX_DEPTH {
            return;
        }
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            if self.inputs.len() < MAX_FILES {
                self.add(&entry.path(), depth + 1);
            }
        }
    }

    /// Checks that a file of this kind may be written to `path`, and can be: before the work.
    ///
    /// # Errors
    /// [`Error::Output`] if `path` is an input or lies in a folder of inputs, is a file that
    /// Forecloud did not write (as this kind), or is a folder; if its folder is missing or can't be
    /// written to.
    pub fn check(&self, path: &Path, kind: Kind) -> Result<()> {
        match self.target(path, kind)? {
            Target::File { place, .. } => must_be_writable(folder_of(&place), path),
            Target::Stream => Ok(()),
        }
    }

    /// Checks that files may be written to the folder `path`, and makes it if it is missing.
    ///
    /// # Errors
    /// [`Error::Output`] if it lies in a folder of inputs, is no folder, or can't be written to.
    pub fn folder(&self, path: &Path) -> Result<()> {
        self.check_folder(path)?;
        fs::create_dir_all(path)
            .map_err(|cause| wrong(path, format!("cannot make the folder: {cause}")))?;
        self.check_folder(path)
    }

    /// As [`Outputs::folder`], and makes nothing: before the work.
    ///
    /// # Errors
    /// As [`Outputs::folder`].
    pub fn check_folder(&self, path: &Path) -> Result<()> {
        // As far as it is there.
        let there = path.ancestors().find(|part| part.exists()).unwrap_or(Path::new("."));
        let there = if there.as_os_str().is_empty() { Path::new(".") } else { there };
        self.is_outside(there, path)?;
        must_be_writable(there, path)
    }

    /// Writes a file of this kind.
    ///
    /// # Errors
    /// As [`Outputs::check`]; [`Error::Io`] if the disk has no room.
    pub fn write(&self, path: &Path, kind: Kind, bytes: &[u8]) -> Result<()> {
        if let Target::Stream = self.target(path, kind)? {
            let io = |cause| Error::Io { path: path.to_owned(), cause };
            let mut stream = OpenOptions::new().write(true).open(path).map_err(io)?;
            return stream.write_all(bytes).and_then(|()| stream.flush()).map_err(io);
        }
        let mut file = self.create(path, kind)?;
        let io = |cause| Error::Io { path: path.to_owned(), cause };
        file.write_all(bytes).map_err(io)?;
        file.finish()
    }

    /// Begins a file of this kind; it has its name once it is finished.
    ///
    /// # Errors
    /// As [`Outputs::check`]; [`Error::Output`] for a device or a pipe.
    pub fn create(&self, path: &Path, kind: Kind) -> Result<Unfinished> {
        match self.target(path, kind)? {
            Target::File { place, .. } => {
                let file = whole_file::Unfinished::beside(&place);
                let file = file.map_err(|error| unwritable(path, &error))?;
                Ok(Unfinished { file, place, kind })
            }
            Target::Stream => Err(wrong(path, "is not a regular file: name another")),
        }
    }

    /// Removes a file of this kind that Forecloud wrote; nothing if there is none.
    ///
    /// # Errors
    /// As [`Outputs::check`]; [`Error::Io`].
    pub fn remove(&self, path: &Path, kind: Kind) -> Result<()> {
        match self.target(path, kind)? {
            Target::File { exists: true, .. } => {
                fs::remove_file(path).map_err(|cause| Error::Io { path: path.to_owned(), cause })
            }
            _ => Ok(()),
        }
    }

    fn target(&self, path: &Path, kind: Kind) -> Result<Target> {
        let unreadable =
            |cause: std::io::Error| wrong(path, format!("can't be looked at: {cause}"));
        let (place, exists) = match fs::symlink_metadata(path) {
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                (new_place(path)?, false)
            }
            Err(error) => return Err(unreadable(error)),
            Ok(_) => match fs::canonicalize(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Err(wrong(path, "is a broken link: remove it"));
                }
                place => (place.map_err(unreadable)?, true),
            },
        };
        if exists {
            let found = fs::metadata(&place).map_err(unreadable)?;
            if found.is_dir() {
                return Err(wrong(path, "is a folder: name a file"));
            }
            let identity = Identity::of(&place, &found);
            if let Some((_, input)) = self.inputs.iter().find(|(input, _)| *input == identity) {
                let is = if input == path { "is" } else { "is, by another name," };
                let problem = format!("{is} an input ({}): name another file", input.display());
                return Err(wrong(path, problem));
            }
            if !found.is_file() {
                return Ok(Target::Stream);
            }
        }
        self.is_outside(place.parent().unwrap_or(&place), path)?;
        if exists && !is_ours(&place, kind).map_err(unreadable)? {
            let problem = format!(
                "is there, and is no {kind} that Forecloud wrote: name another file, or move it \
                 away"
            );
            return Err(wrong(path, problem));
        }
        Ok(Target::File { place, exists })
    }

    /// Checks that `folder` is one, and lies in none of the inputs.
    fn is_outside(&self, folder: &Path, path: &Path) -> Result<()> {
        let place = fs::canonicalize(folder)
            .map_err(|cause| wrong(path, format!("{}: {cause}", folder.display())))?;
        for part in place.ancestors() {
            let Ok(found) = fs::metadata(part) else { continue };
            if part == place && !found.is_dir() {
                return Err(wrong(path, format!("{} is no folder", folder.display())));
            }
            let identity = Identity::of(part, &found);
            if let Some((_, input)) = self.inputs.iter().find(|(input, _)| *input == identity) {
                let input = input.display();
                let problem =
                    format!("lies in the recording {input}: choose a place outside of it");
                return Err(wrong(path, problem));
            }
        }
        Ok(())
    }
}

impl Unfinished {
    /// Brings the file to the disk and gives it its name.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Output`] if another's file has taken its place meanwhile.
    pub fn finish(self) -> Result<()> {
        let place = self.place;
        let io = |cause| Error::Io { path: place.clone(), cause };
        let Some(taken) = self.file.finish_new(&place).map_err(io)? else { return Ok(()) };
        // It was there before, or another thread or process has just written the same.
        match is_ours(&place, self.kind) {
            Ok(true) => taken.finish(&place).map_err(io),
            _ => Err(wrong(&place, "was written by another program meanwhile: name another file")),
        }
    }
}

impl Write for Unfinished {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.file.file.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.file.flush()
    }
}

impl std::io::Seek for Unfinished {
    fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
        self.file.file.seek(to)
    }
}

impl Identity {
    #[cfg(unix)]
    fn of(_: &Path, found: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self(found.dev(), found.ino())
    }

    /// By its name, links followed: hard links are not told.
    #[cfg(not(unix))]
    fn of(path: &Path, _: &Metadata) -> Self {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        fs::canonicalize(path).ok().hash(&mut hasher);
        Self(0, hasher.finish())
    }
}

/// Where a file that is not there yet will be.
fn new_place(path: &Path) -> Result<PathBuf> {
    let Some(name) = path.file_name() else { return Err(wrong(path, "is no name of a file")) };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let place = fs::canonicalize(folder).map_err(|cause| {
        wrong(path, format!("its folder can't be used ({cause}): make it first, or name another"))
    })?;
    Ok(place.join(name))
}

fn folder_of(place: &Path) -> &Path {
    place.parent().unwrap_or(Path::new("."))
}

/// Refuses a folder that can't be written to, without leaving anything in it.
fn must_be_writable(folder: &Path, path: &Path) -> Result<()> {
    // Of no name: nothing is left where the process is killed just now.
    tempfile::tempfile_in(folder).map(drop).map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &std::io::Error) -> Error {
    wrong(path, format!("its folder can't be written to ({}): name another", error.kind()))
}

fn is_ours(path: &Path, kind: Kind) -> std::io::Result<bool> {
    let mut head = Vec::new();
    File::open(path)?.take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok(kind.is_ours(&head))
}

fn wrong(path: &Path, problem: impl Into<String>) -> Error {
    Error::Output { path: path.to_owned(), problem: problem.into() }
}
