//! STL and OBJ, by `mesh_loader`.

use super::{Problem, Triangle, check_count};
use std::io;

/// Bytes before a binary STL's triangles: a header, then their number.
const STL_HEAD: usize = 84;
/// Bytes of a triangle there.
const STL_TRIANGLE: usize = 50;

/// Triangles of an STL file, binary or ascii.
pub(super) fn read_stl(mut bytes: Vec<u8>) -> Result<Vec<Triangle>, Problem> {
    match binary_count(&bytes) {
        Some(n) => {
            check_count(n)?;
            // The crate goes by the first word, which many binary files share with ascii ones, and
            // by the file's length, which some programs add to.
            bytes.truncate(STL_HEAD + n * STL_TRIANGLE);
            bytes[0] = 0;
        }
        None => check_count(count_words(&bytes, b"endfacet"))?,
    }
    triangles(mesh_loader::stl::from_slice(&bytes))
}

/// Triangles of a binary STL file. Text never is one: as a number its characters are more than any
/// file holds.
fn binary_count(bytes: &[u8]) -> Option<usize> {
    let (count, behind) = bytes.get(STL_HEAD - 4..)?.split_first_chunk()?;
    let n = usize::try_from(u32::from_le_bytes(*count)).ok()?;
    (n.checked_mul(STL_TRIANGLE)? <= behind.len()).then_some(n)
}

fn count_words(bytes: &[u8], word: &[u8]) -> usize {
    bytes.split(u8::is_ascii_whitespace).filter(|found| *found == word).count()
}

/// Triangles of an OBJ file; polygons become fans.
pub(super) fn read_obj(bytes: &[u8]) -> Result<Vec<Triangle>, Problem> {
    triangles(mesh_loader::obj::from_slice(&shape_of(bytes)?, None, |_| {
        Err::<Vec<u8>, _>(io::Error::from(io::ErrorKind::NotFound))
    }))
}

/// The positions and faces of an OBJ file alone.
///
/// The crate refuses groups in which only some faces have texture coordinates, and keeps colours and
/// normals that nobody asks for.
fn shape_of(bytes: &[u8]) -> Result<Vec<u8>, Problem> {
    let mut shape = Vec::with_capacity(bytes.len() / 2);
    let mut n_triangles = 0usize;
    for line in bytes.split(|byte| matches!(byte, b'\n' | b'\r')) {
        let line = line.split(|&byte| byte == b'#').next().unwrap_or_default();
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let kind = words.next().unwrap_or_default();
        let (n_words, is_face) = match kind {
            b"v" => (3, false),
            b"f" => (usize::MAX, true),
            _ => continue,
        };
        shape.extend_from_slice(kind);
        let mut n = 0usize;
        for word in words.take(n_words) {
            let index = word.split(|&byte| byte == b'/').next().unwrap_or_default();
            shape.push(b' ');
            shape.extend_from_slice(if is_face { index } else { word });
            n += 1;
        }
        shape.push(b'\n');
        if is_face {
            n_triangles += n.saturating_sub(2);
            check_count(n_triangles)?;
        }
    }
    Ok(shape)
}

/// What the crate read, as triangles.
fn triangles(scene: io::Result<mesh_loader::Scene>) -> Result<Vec<Triangle>, Problem> {
    let scene = scene.map_err(|error| format!("{error}: export it again"))?;
    let of_mesh = |mesh: &mesh_loader::Mesh| -> Option<Vec<Triangle>> {
        let corner = |i: u32| mesh.vertices.get(i as usize).copied();
        let triangle = |&[a, b, c]: &[u32; 3]| Some([corner(a)?, corner(b)?, corner(c)?]);
        mesh.faces.iter().map(triangle).collect()
    };
    let meshes: Option<Vec<_>> = scene.meshes.iter().map(of_mesh).collect();
    meshes.map(|meshes| meshes.concat()).ok_or_else(|| "a face has no such corner".to_owned())
}
