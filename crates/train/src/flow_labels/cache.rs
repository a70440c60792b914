//! Labels kept on disk, found again by the content of the clouds that they were made of.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::Flow;
use forecloud::vision::particles::Particles;
use forecloud::{Error, Result};
use forecloud_bag::outputs::{Kind, LABELS, Outputs};

/// Counts up with each change of how labels are made: older ones are not found any more.
const VERSION: u32 = 1;
/// Bytes of a point's label, and of what stands before those of a frame.
const POINT_BYTES: usize = 24;
const FRAME_BYTES: usize = 8;
/// Bytes of a file of labels that are looked at, packed and unpacked, to tell whether it is whole.
const MAX_CHECKED_BYTES: u64 = 1 << 36;
/// Fast, and most motions are 0.
const LEVEL: i32 = 1;

/// What [`LabelCache::check`] says of a file that is not there.
pub const MISSING: &str = "is missing";

/// A folder of labels.
#[derive(Debug, Clone)]
pub struct LabelCache {
    folder: PathBuf,
}

/// What labels are found by: the content of all that they are made of.
#[derive(Debug, Clone)]
pub struct LabelKey(Sha256);

/// Labels of a frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Labelled {
    /// Its place among the frames of the recording.
    pub frame: usize,
    /// Where its points go.
    pub flow: Flow,
    /// The link that each of its points lies on.
    pub on_links: Vec<u32>,
}

impl Default for LabelKey {
    fn default() -> Self {
        Self(Sha256::new().chain_update(VERSION.to_le_bytes()))
    }
}

impl LabelKey {
    /// Adds a frame: its cloud and the robot's points, in the order of the recording.
    pub fn add(&mut self, stamp_ns: i64, cloud: &Particles, robot: &[[f32; 3]]) {
        let counts = [cloud.len(), cloud.sources.len(), cloud.eyes.len(), robot.len()];
        self.0.update(stamp_ns.to_le_bytes());
        counts.iter().for_each(|n| self.0.update((*n as u64).to_le_bytes()));
        self.0.update(cloud.support_m.unwrap_or(f32::NAN).to_le_bytes());
        let mut bytes = Vec::with_capacity(28 * cloud.len() + 12 * robot.len());
        let triples = cloud.positions.iter().chain(&cloud.colors).chain(&cloud.eyes).chain(robot);
        bytes.extend(triples.flatten().flat_map(|x| x.to_le_bytes()));
        bytes.extend(cloud.sources.iter().flat_map(|source| source.to_le_bytes()));
        self.0.update(&bytes);
    }

    /// Adds that cameras moved, whose errors labels are to be free of.
    pub fn add_moving_cameras(&mut self) {
        self.0.update(b"moving cameras 1");
    }

    /// Name of the file of its labels.
    pub fn file_name(&self) -> String {
        let hash = self.0.clone().finalize();
        hash[..16].iter().map(|byte| format!("{byte:02x}")).collect::<String>() + ".labels"
    }
}

impl LabelCache {
    /// In `folder`, which is made with the first labels.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Whether a file of labels is there and whole, by its form alone.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, name: &str) -> std::result::Result<(), &'static str> {
        let file = File::open(self.folder.join(name));
        let mut file = file.map_err(|_| MISSING)?.take(MAX_CHECKED_BYTES);
        let mut head = vec![0; LABELS.len()];
        if file.read_exact(&mut head).is_err() || head != LABELS.as_bytes() {
            return Err("is not a file of labels");
        }
        let mut decoder = zstd::Decoder::new(file).map_err(|_| "is cut")?.take(MAX_CHECKED_BYTES);
        let mut frame = [0; FRAME_BYTES];
        // None is left before a frame: that is the end.
        while let Ok(1..) = decoder.read(&mut frame[..1]) {
            let more = decoder.read_exact(&mut frame[1..]);
            let n = u64::from(u32::from_le_bytes([frame[4], frame[5], frame[6], frame[7]]));
            let n_bytes = n * POINT_BYTES as u64;
            let points = std::io::copy(&mut (&mut decoder).take(n_bytes), &mut std::io::sink());
            if more.is_err() || points.ok() != Some(n_bytes) {
                return Err("is cut or damaged");
            }
        }
        match decoder.read(&mut frame) {
            Ok(0) => Ok(()),
            _ => Err("is cut or damaged"),
        }
    }

    /// Labels of frames that have `n_points` each, if they are there and whole; what is damaged is as
    /// good as none.
    pub fn read(&self, key: &LabelKey, n_points: &[usize]) -> Option<Vec<Labelled>> {
        let mut file = File::open(self.folder.join(key.file_name())).ok()?;
        let mut head = vec![0; LABELS.len()];
        file.read_exact(&mut head).ok()?;
        if head != LABELS.as_bytes() {
            return None;
        }
        // No more than there can be.
        let most: usize = n_points.iter().map(|n| FRAME_BYTES + POINT_BYTES * n).sum();
        let mut bytes = Vec::new();
        let decoder = zstd::Decoder::new(file).ok()?;
        decoder.take(most as u64 + 1).read_to_end(&mut bytes).ok()?;
        let (mut rest, mut labels) = (&bytes[..], Vec::new());
        while !rest.is_empty() {
            let ([frame, n], after) = (number(rest)?, rest.get(FRAME_BYTES..)?);
            if n_points.get(frame) != Some(&n) {
                return None;
            }
            let mut words = after.get(..POINT_BYTES * n)?.chunks_exact(4);
            let mut word = || words.next().and_then(|word| word.try_into().ok());
            let mut flow = Flow::default();
            let mut on_links = Vec::with_capacity(n);
            for _ in 0..n {
                let float =
                    |word: [u8; 4]| Some(f32::from_le_bytes(word)).filter(|x| x.is_finite());
                flow.motions.push([float(word()?)?, float(word()?)?, float(word()?)?]);
                flow.confidences.push(float(word()?)?);
                flow.body_of.push(u32::from_le_bytes(word()?));
                on_links.push(u32::from_le_bytes(word()?));
            }
            labels.push(Labelled { frame, flow, on_links });
            rest = &after[POINT_BYTES * n..];
        }
        Some(labels)
    }

    /// Keeps labels.
    ///
    /// # Errors
    /// [`Error::Output`] if the folder can't be written to, [`Error::Io`] if the disk has no room.
    pub fn write<'a>(
        &self,
        key: &LabelKey,
        labels: impl Iterator<Item = (usize, &'a Flow, &'a [u32])>,
    ) -> Result<()> {
        let mut bytes = Vec::new();
        for (frame, flow, on_links) in labels {
            bytes.extend(
                [frame, flow.motions.len()].map(|n| (n as u32).to_le_bytes()).as_flattened(),
            );
            for (i, (motion, confidence)) in flow.motions.iter().zip(&flow.confidences).enumerate()
            {
                bytes.extend(motion.iter().chain([confidence]).flat_map(|x| x.to_le_bytes()));
                bytes.extend([flow.body_of[i], on_links[i]].map(u32::to_le_bytes).as_flattened());
            }
        }
        let path = self.folder.join(key.file_name());
        let packed = zstd::bulk::compress(&bytes, LEVEL);
        let packed = packed.map_err(|cause| Error::Io { path: path.clone(), cause })?;
        let outputs = Outputs::default();
        outputs.folder(&self.folder)?;
        outputs.write(&path, Kind::Labels, &[LABELS.as_bytes(), &packed].concat())
    }
}

/// Two numbers at the beginning.
fn number(bytes: &[u8]) -> Option<[usize; 2]> {
    let (first, rest) = bytes.split_first_chunk::<4>()?;
    let second = rest.first_chunk::<4>()?;
    Some([first, second].map(|word| u32::from_le_bytes(*word) as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(x: f32) -> LabelKey {
        let mut key = LabelKey::default();
        let mut cloud = Particles::default();
        cloud.positions.resize(2, [x; 3]);
        key.add(7, &cloud, &[]);
        key
    }

    fn labels() -> Vec<Labelled> {
        let flow = Flow {
            motions: vec![[0.1, 0.2, 0.3], [0.0; 3]],
            confidences: vec![0.5, 1.0],
            body_of: vec![3, u32::MAX],
        };
        vec![Labelled { frame: 1, flow, on_links: vec![u32::MAX, 4] }]
    }

    fn keep(cache: &LabelCache, key: &LabelKey) {
        let labels = labels();
        let parts = labels.iter().map(|one| (one.frame, &one.flow, &one.on_links[..]));
        cache.write(key, parts).unwrap();
    }

    #[test]
    fn what_was_kept_is_found_by_its_content_alone() {
        let folder = tempfile::tempdir().unwrap();
        let cache = LabelCache::new(&folder.path().join("labels"));
        assert_eq!(cache.read(&key(1.0), &[5, 2]), None);
        keep(&cache, &key(1.0));
        assert_eq!(cache.read(&key(1.0), &[5, 2]), Some(labels()));
        assert_eq!(cache.read(&key(1.5), &[5, 2]), None);
        assert_eq!(cache.read(&key(1.0), &[5, 3]), None, "of other frames");
        assert_eq!(cache.read(&key(1.0), &[5]), None);
    }

    #[test]
    fn what_is_damaged_is_as_good_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let cache = LabelCache::new(folder.path());
        keep(&cache, &key(1.0));
        let path = folder.path().join(key(1.0).file_name());
        let whole = std::fs::read(&path).unwrap();
        for n in 0..whole.len() {
            std::fs::write(&path, &whole[..n]).unwrap();
            assert_eq!(cache.read(&key(1.0), &[5, 2]), None, "{n} bytes");
            assert!(cache.check(&key(1.0).file_name()).is_err(), "{n} bytes");
        }
        std::fs::write(&path, &whole).unwrap();
        assert_eq!(cache.check(&key(1.0).file_name()), Ok(()));
        assert_eq!(cache.check("none.labels"), Err(MISSING));
        // More than there can be is not unpacked.
        let bomb = zstd::bulk::compress(&vec![0; 1 << 24], LEVEL).unwrap();
        std::fs::write(&path, [LABELS.as_bytes(), &bomb].concat()).unwrap();
        assert_eq!(cache.read(&key(1.0), &[5, 2]), None);
        keep(&cache, &key(1.0));
        assert_eq!(cache.read(&key(1.0), &[5, 2]), Some(labels()), "it is made anew");
    }
}
