//! Triangle meshes of links: found, read within limits, and told of where they cannot be used.
//!
//! Read are STL (ascii and binary), OBJ and COLLADA (.dae). STL and OBJ have no unit: their numbers
//! are metres until the description's scale is applied. Descriptions come from outside, and so do
//! the meshes they name; no limit goes by a clock, so that the same files always give the same
//! points.

mod collada;
mod formats;
mod sampler;
mod search;
#[cfg(test)]
mod tests;

use nalgebra::Vector3;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

pub(super) use sampler::Sampler;
pub use search::MeshSearch;

/// Largest mesh file, bytes.
const MAX_FILE_BYTES: usize = 64 << 20;
/// Most triangles of a mesh.
const MAX_TRIANGLES: usize = 1_000_000;
/// Different mesh files that one robot may name.
const MAX_ROBOT_MESHES: usize = 512;
/// Largest sum of a robot's mesh files, bytes.
const MAX_ROBOT_BYTES: usize = 512 << 20;
/// Most triangles of all meshes of a robot, each counted once for each of its scales.
const MAX_ROBOT_TRIANGLES: usize = 8_000_000;
/// Farthest a link may reach from its origin, metres: beyond, a mesh in millimetres lacks its scale.
const MAX_REACH_M: f64 = 100.0;
/// Meshes that a warning names; the others it counts.
const MAX_NAMED: usize = 3;
/// Problems that are told; who has more sees the others once these are gone.
const MAX_TOLD: usize = MAX_ROBOT_MESHES;

/// Corners of a triangle, metres but for the description's scale.
type Triangle = [[f32; 3]; 3];

/// What is wrong with a mesh and what to do, for a warning.
type Problem = String;

/// The triangles of a mesh file: at least one, all finite.
#[derive(Debug)]
pub(super) struct Mesh {
    triangles: Vec<Triangle>,
    n_bytes: usize,
}

/// The meshes of one robot, each read once.
pub(super) struct Meshes<'a> {
    search: &'a MeshSearch,
    read: HashMap<String, Option<Arc<Mesh>>>,
    /// By mesh and the bits of its scale.
    samplers: HashMap<(String, [u64; 3]), Option<Arc<Sampler>>>,
    n_bytes: usize,
    n_triangles: usize,
    problems: Vec<Told>,
}

/// A problem, the first meshes that have it, and how many do.
struct Told {
    problem: Problem,
    named: Vec<String>,
    n: usize,
}

impl<'a> Meshes<'a> {
    pub(super) fn new(search: &'a MeshSearch) -> Self {
        let (read, samplers, problems) = (HashMap::new(), HashMap::new(), Vec::new());
        Self { search, read, samplers, n_bytes: 0, n_triangles: 0, problems }
    }

    /// The surface of the mesh that `uri` names, scaled per axis; none is told by
    /// [`Meshes::warnings`].
    pub(super) fn sampler(&mut self, uri: &str, scale: Vector3<f64>) -> Option<Arc<Sampler>> {
        let key = (uri.to_owned(), scale.map(f64::to_bits).into());
        if let Some(known) = self.samplers.get(&key) {
            return known.clone();
        }
        let mesh = self.mesh(uri)?;
        let sampler = self.scaled(mesh, scale).map(Arc::new);
        let sampler = sampler.map_err(|problem| self.note(uri, problem)).ok();
        self.samplers.insert(key, sampler.clone());
        sampler
    }

    /// A line for each problem: the meshes that have it, the cause and the remedy.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        self.problems.iter().map(|Told { problem, named, n }| {
            let more = match n - named.len() {
                0 => String::new(),
                n => format!(" and {n} more"),
            };
            format!("mesh {}{more}: {problem}", named.join(", "))
        })
    }

    fn mesh(&mut self, uri: &str) -> Option<Arc<Mesh>> {
        if let Some(known) = self.read.get(uri) {
            return known.clone();
        }
        let mesh = self.load(uri).map_err(|problem| self.note(uri, problem)).ok();
        self.read.insert(uri.to_owned(), mesh.clone());
        mesh
    }

    fn load(&mut self, uri: &str) -> Result<Arc<Mesh>, Problem> {
        if self.read.len() >= MAX_ROBOT_MESHES {
            return Err(format!("a robot's first {MAX_ROBOT_MESHES} meshes are read, no more"));
        }
        let path = self.search.find(uri)?;
        let mesh = self.search.read(&path, || read(&path))?;
        if self.n_bytes + mesh.n_bytes > MAX_ROBOT_BYTES {
            let mib = MAX_ROBOT_BYTES >> 20;
            return Err(format!("the robot's meshes are over {mib} MiB: simplify them"));
        }
        self.n_bytes += mesh.n_bytes;
        Ok(mesh)
    }

    fn scaled(&mut self, mesh: Arc<Mesh>, scale: Vector3<f64>) -> Result<Sampler, Problem> {
        // Counted for each scale: each takes its time and memory.
        let n_triangles = self.n_triangles + mesh.triangles.len();
        if n_triangles > MAX_ROBOT_TRIANGLES {
            let most = MAX_ROBOT_TRIANGLES;
            return Err(format!("the robot's meshes have over {most} triangles: simplify them"));
        }
        self.n_triangles = n_triangles;
        Sampler::new(mesh, scale)
    }

    fn note(&mut self, uri: &str, problem: Problem) {
        let known = self.problems.iter_mut().find(|told| told.problem == problem);
        if let Some(told) = known {
            told.n += 1;
            if told.named.len() < MAX_NAMED {
                told.named.push(shown(uri));
            }
        } else if self.problems.len() < MAX_TOLD {
            self.problems.push(Told { problem, named: vec![shown(uri)], n: 1 });
        }
    }
}

/// Reads the mesh file at `path`; its extension says what it is.
fn read(path: &Path) -> Result<Mesh, Problem> {
    let bytes = read_file(path)?;
    let n_bytes = bytes.len();
    let at = |problem| format!("{}: {problem}", shown(&path.display().to_string()));
    let triangles = match search::extension(path).as_str() {
        "stl" => formats::read_stl(bytes),
        "obj" => formats::read_obj(&bytes),
        "dae" => collada::read(&bytes),
        _ => Err(search::OTHER_FORMAT.to_owned()),
    };
    let triangles = triangles.and_then(checked).map_err(at)?;
    Ok(Mesh { triangles, n_bytes })
}

/// The bytes of a file that is one, and not too large.
fn read_file(path: &Path) -> Result<Vec<u8>, Problem> {
    let name = shown(&path.display().to_string());
    let failed = |error: std::io::Error| format!("{name} cannot be read: {error}");
    let too_large = || format!("{name} is over {} MiB: simplify it", MAX_FILE_BYTES >> 20);
    // Before it is opened: that would wait for a FIFO's other end.
    let found = std::fs::metadata(path).map_err(failed)?;
    if !found.is_file() {
        return Err(format!("{name} is no file"));
    }
    if found.len() > MAX_FILE_BYTES as u64 {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(found.len() as usize);
    // It may have grown since.
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > MAX_FILE_BYTES { Err(too_large()) } else { Ok(bytes) }
}

/// Triangles that a robot can be made of.
fn checked(triangles: Vec<Triangle>) -> Result<Vec<Triangle>, Problem> {
    check_count(triangles.len())?;
    if triangles.is_empty() {
        return Err("it has no triangles".to_owned());
    }
    if triangles.iter().flatten().flatten().any(|x| !x.is_finite()) {
        return Err("it has corners that are not finite: export it again".to_owned());
    }
    Ok(triangles)
}

fn check_count(n_triangles: usize) -> Result<(), Problem> {
    if n_triangles > MAX_TRIANGLES {
        return Err(format!("it has over {MAX_TRIANGLES} triangles: simplify it"));
    }
    Ok(())
}

/// A name from outside in a message: on one line, and not too long.
fn shown(name: &str) -> String {
    const MAX_CHARS: usize = 160;
    match name.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", name[..end].escape_debug()),
        None => name.escape_debug().to_string(),
    }
}
