//! Where mesh files are looked for.

use super::{MAX_TRIANGLES, Mesh, Problem, shown};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use crate::base::whole_file::read_at_most;

/// Which files may be read at all: descriptions come from outside.
const EXTENSIONS: [&str; 3] = ["stl", "obj", "dae"];
pub(super) const OTHER_FORMAT: &str =
    "only .stl, .obj and .dae are read: convert it, or give the link boxes, cylinders or spheres";
/// Most triangles that are kept for the next robot.
const MAX_KEPT: usize = MAX_TRIANGLES;
/// Largest package.xml that is looked into, bytes.
const MAX_PACKAGE_XML: u64 = 1 << 20;

/// Where the meshes of a robot description are looked for.
///
/// `package://NAME/rest` is looked for in each folder that was given — which is the package `NAME`
/// (by its own name or its package.xml) or contains it (`NAME`, `share/NAME`, `src/NAME`) — then in
/// those of ROS_PACKAGE_PATH, then where ROS 2 installed it (AMENT_PREFIX_PATH); a package that is
/// nowhere is looked for in the folders without its name. Relative paths are looked for in the folders
/// alone: a description on a topic lies in none. `file://` and absolute paths are taken as they are.
/// Only .stl, .obj and .dae are opened.
///
/// What was read is kept, up to a million triangles, and shared by clones: the next robot of the
/// same meshes reads no file.
#[derive(Debug, Clone)]
pub struct MeshSearch {
    folders: Vec<PathBuf>,
    /// A folder that is taken for any package that is not found elsewhere.
    beside: Option<PathBuf>,
    /// Where packages are installed.
    pub(super) prefixes: Vec<PathBuf>,
    kept: Arc<Mutex<HashMap<PathBuf, Kept>>>,
}

#[derive(Debug)]
struct Kept {
    mesh: Arc<Mesh>,
    n_bytes: u64,
    modified: Option<SystemTime>,
}

impl Default for MeshSearch {
    /// As the environment says, with no folders besides.
    fn default() -> Self {
        Self::new(Vec::<PathBuf>::new())
    }
}

impl MeshSearch {
    /// Looks in `folders` first, then where the environment says.
    pub fn new(folders: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        let paths = |name| std::env::var_os(name).unwrap_or_default();
        let mut search = Self::only(folders);
        search.folders.extend(split(&paths("ROS_PACKAGE_PATH")));
        search.prefixes = split(&paths("AMENT_PREFIX_PATH"));
        search
    }

    /// Looks in `folders` alone, whatever the environment says.
    pub fn only(folders: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        let folders = folders.into_iter().map(Into::into).collect();
        Self { folders, beside: None, prefixes: Vec::new(), kept: Arc::default() }
    }

    /// Looks beside a recording, too, for what is nowhere else: its folder may be its robot's package.
    pub fn beside(&self, recording: &Path) -> Self {
        let folder = if recording.is_dir() { Some(recording) } else { recording.parent() };
        Self { beside: folder.map(Path::to_owned), ..self.clone() }
    }

    /// The file that `uri` names.
    pub(super) fn find(&self, uri: &str) -> Result<PathBuf, Problem> {
        let (scheme, path) = match uri.trim().split_once("://") {
            Some((scheme, path)) => (Some(scheme.to_ascii_lowercase()), decoded(path)?),
            None => (None, uri.trim().to_owned()),
        };
        if !EXTENSIONS.contains(&extension(Path::new(&path)).as_str()) {
            return Err(OTHER_FORMAT.to_owned());
        }
        match scheme.as_deref() {
            Some("package" | "model") => self.find_in_package(&path),
            Some("file") => existing(Path::new(path.strip_prefix("localhost").unwrap_or(&path))),
            Some(other) => Err(format!("{}:// is not read: give a file", shown(other))),
            None if Path::new(&path).is_absolute() => existing(Path::new(&path)),
            None => {
                let found = self.folders.iter().map(|folder| folder.join(&path));
                found.into_iter().find(|found| found.exists()).ok_or_else(|| {
                    "a relative path that none of the search folders has: name the folder that it \
                     starts from in mesh_paths (tool: -p mesh_paths:=FOLDER)"
                        .to_owned()
                })
            }
        }
    }

    fn find_in_package(&self, path: &str) -> Result<PathBuf, Problem> {
        let (name, rest) = path.split_once('/').unwrap_or((path, ""));
        let mut parts = Path::new(name).components();
        if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
            return Err("it names no package: package://NAME/…".to_owned());
        }
        let rest = inside(rest).ok_or_else(|| format!("it leads out of its package '{name}'"))?;
        let mut found = None;
        for root in self.roots(name) {
            if root.join(&rest).exists() {
                return Ok(root.join(&rest));
            }
            found.get_or_insert(root);
        }
        // The package may lie there under another name, or without one.
        let folders = self.folders.iter().filter(|_| found.is_none()).chain(&self.beside);
        if let Some(path) = folders.map(|folder| folder.join(&rest)).find(|path| path.exists()) {
            return Ok(path);
        }
        let name = shown(name);
        Err(match found {
            Some(root) => {
                let root = shown(&root.display().to_string());
                format!("package '{name}' is {root}, which lacks that file: install it whole")
            }
            None => format!(
                "package '{name}' is not found: source the workspace that has it, or name a folder \
                 in mesh_paths (tool: -p mesh_paths:=FOLDER)"
            ),
        })
    }

    /// Folders that are package `name`, the most wanted first.
    fn roots<'a>(&'a self, name: &'a str) -> impl Iterator<Item = PathBuf> + 'a {
        let of_folder = move |folder: &'a PathBuf| {
            let itself = is_package(folder, name).then(|| folder.clone());
            let within = [name.into(), Path::new("share").join(name), Path::new("src").join(name)];
            itself.into_iter().chain(within.map(|within: PathBuf| folder.join(within)))
        };
        let installed = self.prefixes.iter().map(move |prefix| prefix.join("share").join(name));
        self.folders.iter().flat_map(of_folder).chain(installed).filter(|root| root.is_dir())
    }

    /// The mesh at `path`: as it was kept, or as `read` reads it.
    pub(super) fn read(
        &self,
        path: &Path,
        read: impl FnOnce() -> Result<Mesh, Problem>,
    ) -> Result<Arc<Mesh>, Problem> {
        let found = std::fs::metadata(path).ok();
        let state = found.map(|found| (found.len(), found.modified().ok()));
        if let (Some(state), Ok(kept)) = (state, self.kept.lock())
            && let Some(known) = kept.get(path)
            && state == (known.n_bytes, known.modified)
        {
            return Ok(known.mesh.clone());
        }
        let mesh = Arc::new(read()?);
        if let (Some((n_bytes, modified)), Ok(mut kept)) = (state, self.kept.lock()) {
            let n_kept: usize = kept.values().map(|kept| kept.mesh.triangles.len()).sum();
            if n_kept + mesh.triangles.len() <= MAX_KEPT {
                kept.insert(path.to_owned(), Kept { mesh: mesh.clone(), n_bytes, modified });
            }
        }
        Ok(mesh)
    }
}

/// Lower-case extension of a path; empty if there is none.
pub(super) fn extension(path: &Path) -> String {
    path.extension().and_then(OsStr::to_str).unwrap_or_default().to_ascii_lowercase()
}

/// The folders of a search path; empty ones are none.
pub(super) fn split(paths: &OsStr) -> Vec<PathBuf> {
    std::env::split_paths(paths).filter(|path| !path.as_os_str().is_empty()).collect()
}

fn existing(path: &Path) -> Result<PathBuf, Problem> {
    if path.exists() {
        Ok(path.to_owned())
    } else {
        let path = shown(&path.display().to_string());
        Err(format!("{path} is not there: describe it as package://NAME/…, or put it there"))
    }
}

/// `rest` without `.` and `..`; none if it leads out.
fn inside(rest: &str) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for part in Path::new(rest.trim_start_matches('/')).components() {
        match part {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            Component::ParentDir if path.pop() => {}
            _ => return None,
        }
    }
    Some(path)
}

/// Whether `folder` is package `name`: by its own name, or by its package.xml.
fn is_package(folder: &Path, name: &str) -> bool {
    let folder_name = folder.canonicalize().ok();
    if folder_name.is_some_and(|folder| folder.file_name() == Some(OsStr::new(name))) {
        return true;
    }
    let path = folder.join("package.xml");
    // Before it is opened: that would wait for a FIFO's other end.
    if !path.is_file() {
        return false;
    }
    let text = read_at_most(&path, MAX_PACKAGE_XML).ok().and_then(|it| String::from_utf8(it).ok());
    let Some(text) = text else { return false };
    let Ok(document) = roxmltree::Document::parse(&text) else { return false };
    let mut named = document.root_element().children().filter(|node| node.has_tag_name("name"));
    named.next().and_then(|node| node.text()).is_some_and(|text| text.trim() == name)
}

/// A URI's path with its `%XX` as the bytes they stand for.
fn decoded(path: &str) -> Result<String, Problem> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let digits = behind.first_chunk::<2>().filter(|_| byte == b'%');
        let code = digits.and_then(|digits| {
            let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
            u8::try_from(high? * 16 + low?).ok()
        });
        bytes.push(code.unwrap_or(byte));
        rest = if code.is_some() { &behind[2..] } else { behind };
    }
    let is_text = !bytes.contains(&0);
    let text = String::from_utf8(bytes).ok().filter(|_| is_text);
    text.ok_or_else(|| "its %XX are no text in UTF-8".to_owned())
}
