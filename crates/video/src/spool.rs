//! Pictures kept on disk: those of an hour of recordings do not fit in memory.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use nalgebra::Isometry3;

use super::Picture;
use forecloud::vision::camera::Camera;
use forecloud::{Error, Result};

/// Bytes of a pixel: colour and depth.
const PIXEL_BYTES: usize = 7;

/// A file without a name, which goes with it; any number of threads may keep and read.
pub struct Spool {
    file: File,
    folder: PathBuf,
    end: AtomicU64,
    /// What went wrong first in keeping.
    failure: OnceLock<(ErrorKind, String)>,
}

/// A frame's pictures that are kept in a [`Spool`].
#[derive(Debug, Clone)]
pub struct Kept {
    plates: Vec<Plate>,
}

/// What is known of a picture without its pixels.
#[derive(Debug, Clone)]
struct Plate {
    place: u64,
    camera: usize,
    size: [u32; 2],
    lens: Camera,
    world_from_camera: Isometry3<f64>,
}

impl Spool {
    /// An empty one, on the disk of `folder`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn new(folder: &Path) -> Result<Self> {
        let file = tempfile::tempfile_in(folder).map_err(|cause| io(folder, cause))?;
        Ok(Self::of(file, folder))
    }

    fn of(file: File, folder: &Path) -> Self {
        let (end, failure) = (AtomicU64::new(0), OnceLock::new());
        Self { file, folder: folder.to_owned(), end, failure }
    }

    /// Whether all pictures so far were kept: who reads recordings takes a picture that could not be kept
    /// for a bad frame of one, and goes on.
    ///
    /// # Errors
    /// The first one of [`Spool::keep`].
    pub fn must_have_kept(&self) -> Result<()> {
        let again = |(kind, text): &(ErrorKind, String)| std::io::Error::new(*kind, text.clone());
        self.failure.get().map_or(Ok(()), |failure| Err(io(&self.folder, again(failure))))
    }

    /// Keeps `pictures`, at 7 bytes a pixel.
    ///
    /// # Errors
    /// [`Error::Io`], such as of a full disk.
    pub fn keep(&self, pictures: &[Picture]) -> Result<Kept> {
        let keep = |picture: &Picture| {
            let mut bytes = Vec::with_capacity(PIXEL_BYTES * picture.n_pixels());
            bytes.extend_from_slice(picture.colors.as_flattened());
            bytes.extend(picture.depths_m.iter().flat_map(|depth_m| depth_m.to_le_bytes()));
            let place = self.end.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            self.file.write_all_at(&bytes, place).map_err(|cause| {
                self.failure.get_or_init(|| (cause.kind(), cause.to_string()));
                io(&self.folder, cause)
            })?;
            let &Picture { camera, size, lens, world_from_camera, .. } = picture;
            Ok(Plate { place, camera, size, lens, world_from_camera })
        };
        Ok(Kept { plates: pictures.iter().map(keep).collect::<Result<_>>()? })
    }

    /// The pictures as they were kept, but for [`Picture::sources`], which are empty.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn read(&self, kept: &Kept) -> Result<Vec<Picture>> {
        let read = |plate: &Plate| {
            let &Plate { place, camera, size, lens, world_from_camera } = plate;
            let n_pixels = size[0] as usize * size[1] as usize;
            let mut bytes = vec![0; PIXEL_BYTES * n_pixels];
            self.file.read_exact_at(&mut bytes, place).map_err(|cause| io(&self.folder, cause))?;
            let (colors, depths_m) = bytes.split_at(3 * n_pixels);
            let (colors, depths_m) = (colors.as_chunks().0, depths_m.as_chunks().0);
            Ok(Picture {
                camera,
                size,
                colors: colors.to_vec(),
                depths_m: depths_m.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect(),
                sources: Vec::new(),
                lens,
                world_from_camera,
            })
        };
        kept.plates.iter().map(read).collect()
    }
}

fn io(folder: &Path, cause: std::io::Error) -> Error {
    Error::Io { path: folder.join("(pictures, in a file without a name)"), cause }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::of_tiny_push;

    #[test]
    fn pictures_are_read_as_they_were_kept() {
        let spool = Spool::new(&std::env::temp_dir()).unwrap();
        let pictures = of_tiny_push([40, 30]);
        let kept: Vec<Kept> = (0..3).map(|_| spool.keep(&pictures).unwrap()).collect();
        for kept in &kept {
            let read = spool.read(kept).unwrap();
            assert_eq!(read.len(), 2);
            for (read, picture) in read.iter().zip(&pictures) {
                assert_eq!((read.camera, read.size), (picture.camera, picture.size));
                assert_eq!(read.colors, picture.colors);
                let bits = |picture: &Picture| -> Vec<u32> {
                    picture.depths_m.iter().map(|x| x.to_bits()).collect()
                };
                assert_eq!(bits(read), bits(picture));
                assert_eq!(read.ray(7, 0.5), picture.ray(7, 0.5));
            }
        }
        let n_pixels: usize = pictures.iter().map(Picture::n_pixels).sum();
        assert_eq!(spool.end.into_inner() as usize, 3 * PIXEL_BYTES * n_pixels);
    }

    #[test]
    fn a_full_disk_is_not_forgotten() {
        let full = std::fs::OpenOptions::new().read(true).write(true).open("/dev/full");
        let Ok(full) = full else { return };
        let spool = Spool::of(full, Path::new("out"));
        assert!(spool.must_have_kept().is_ok());
        let told = spool.keep(&of_tiny_push([40, 30])).unwrap_err().to_string();
        assert!(told.starts_with("out/(pictures") && told.contains("No space"), "{told}");
        assert_eq!(spool.must_have_kept().unwrap_err().to_string(), told);
    }

    #[test]
    fn what_cannot_be_kept_is_told_with_its_place() {
        let error = Spool::new(Path::new("/no/such/folder")).err().unwrap();
        assert!(error.to_string().starts_with("/no/such/folder"), "{error}");
    }
}
