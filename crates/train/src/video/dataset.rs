//! Pictures of recordings, and windows of them: a frame, and a later one that its particles lead to.

use std::path::Path;

use nalgebra::Isometry3;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::VideoTrainConfig;
use forecloud::message::Stamp;
use forecloud::vision::cloud::Cloud;
use forecloud::vision::frames::FramesConfig;
use forecloud::{Error, Result};
use forecloud_bag::recording::{Recording, carry};
use forecloud_video::{Encoded, Encoder, Kept, Picture, Seen, Spool, VideoConfig};

/// Frames of recordings, reduced to pictures, which lie on disk.
pub struct VideoDataset {
    config: VideoConfig,
    frames: FramesConfig,
    spool: Spool,
    ignores_truth: bool,
    episodes: Vec<Vec<Shot>>,
}

/// A frame's pictures.
struct Shot {
    stamp: Stamp,
    pictures: Kept,
    /// Body of each pixel, by picture; none of a recording without truth.
    bodies: Vec<Vec<u16>>,
    /// Where the bodies are; none without truth.
    poses: Vec<Isometry3<f64>>,
}

/// What is encoded and what it is drawn as.
pub struct Window {
    /// What the encoded frame's cameras saw.
    pub pictures: Vec<Picture>,
    /// What each of these cameras saw before, the oldest first, where the encoder looks at that
    /// ([`forecloud_video::EncoderKind::n_past`]).
    pub past: Vec<Vec<Picture>>,
    /// Its particles, as they were drawn.
    pub seen: Seen,
    /// Where these truly are in the frame that is drawn (m).
    pub positions: Vec<[f32; 3]>,
    /// What is drawn.
    pub targets: Vec<Picture>,
    /// How many frames later that is; 0: the same.
    pub n_later: usize,
}

impl Window {
    /// Features of the pictures.
    ///
    /// # Errors
    /// As [`Encoder::encode`].
    pub fn encode(&self, encoder: &Encoder<'_>) -> Result<Vec<Encoded>> {
        let encode = |(picture, past): (&Picture, &Vec<Picture>)| {
            encoder.encode(picture, &past.iter().collect::<Vec<_>>())
        };
        self.pictures.iter().zip(&self.past).map(encode).collect()
    }
}

impl VideoDataset {
    /// Least time between two frames that are kept (s).
    pub const APART_SECS: f64 = 0.2;

    /// An empty one, of pictures as `config` has them, which are kept in `spool`.
    pub fn new(config: VideoConfig, frames: FramesConfig, spool: Spool) -> Self {
        Self { config, frames, spool, ignores_truth: false, episodes: Vec::new() }
    }

    /// Looks at no truth but the split: frames are drawn as their own cameras saw them.
    pub fn ignore_truth(self, ignores_truth: bool) -> Self {
        Self { ignores_truth, ..self }
    }

    /// Whether all pictures were kept.
    ///
    /// # Errors
    /// As [`Spool::must_have_kept`].
    pub fn must_have_kept(&self) -> Result<()> {
        self.spool.must_have_kept()
    }

    /// Adds a recording of split `split`, or one that tells of none if `takes_unsaid`; whether it was
    /// added. Takes 7 bytes of disk for each pixel of a picture, and with truth 2 of memory.
    ///
    /// # Errors
    /// What makes the recording unusable, and [`forecloud::Error::Io`] of the disk; frames that can't be read are
    /// left out.
    pub fn add(&mut self, path: &Path, split: &str, takes_unsaid: bool) -> Result<bool> {
        let glimpse = Recording::glimpse(path)?;
        let said = glimpse.truth().map_or("", |truth| truth.split.as_str());
        if said != split && !(takes_unsaid && said.is_empty()) {
            return Ok(false);
        }
        let recording = glimpse.open(self.frames.clone())?;
        let (mut shots, mut cloud): (Vec<Shot>, _) = (Vec::new(), Cloud::default());
        let mut problem = None;
        recording.play(|frame, ids| -> Result<()> {
            let last = shots.last().map(|shot| frame.stamp.secs_since(shot.stamp));
            // A tenth less: frames are not on time to the last nanosecond.
            if last.is_some_and(|secs| (0.0..0.9 * Self::APART_SECS).contains(&secs)) {
                return Ok(());
            }
            let pictures = Picture::of_cameras(&frame.cameras, self.config.picture, &mut cloud);
            let pictures = match pictures {
                Ok(pictures) if pictures.is_empty() => return Ok(()),
                Ok(pictures) => pictures,
                Err(error) => {
                    problem.get_or_insert(error);
                    return Ok(());
                }
            };
            let truth = recording.truth().filter(|_| !self.ignores_truth);
            let truth = truth.and_then(|truth| truth.poses(frame.stamp)).zip(ids);
            let (poses, bodies) = truth.map_or((Vec::new(), Vec::new()), |(poses, ids)| {
                let of = |p: &Picture| p.sources.iter().map(|&source| ids.id(source)).collect();
                (poses.to_vec(), pictures.iter().map(of).collect())
            });
            let pictures = self.spool.keep(&pictures)?;
            shots.push(Shot { stamp: frame.stamp, pictures, bodies, poses });
            Ok(())
        })?;
        if shots.is_empty() {
            let none = "no frame with colour and depth, which pictures are made of".into();
            let path = path.to_owned();
            return Err(problem.unwrap_or(Error::Bag { path, problem: none }));
        }
        self.episodes.push(shots);
        Ok(true)
    }

    /// Number of recordings.
    pub fn n_recordings(&self) -> usize {
        self.episodes.len()
    }

    /// Number of frames.
    pub fn n_frames(&self) -> usize {
        self.episodes.iter().map(Vec::len).sum()
    }

    /// Draws a window; none if there is no frame.
    ///
    /// # Errors
    /// As [`Spool::read`].
    pub fn draw(&self, rng: &mut ChaCha8Rng, config: &VideoTrainConfig) -> Result<Option<Window>> {
        if self.episodes.is_empty() {
            return Ok(None);
        }
        let episode = rng.random_range(0..self.episodes.len());
        let t = rng.random_range(0..self.episodes[episode].len());
        let is_still = rng.random_bool(config.still_share);
        let n_later = rng.random_range(1..=config.most_later);
        let seed = rng.random();
        self.window(episode, t, if is_still { 0 } else { n_later }, seed).transpose()
    }

    /// The same frames whatever was drawn before: one of each recording, in order, `n` at most, drawn
    /// `n_later` frames later.
    pub fn spread(&self, n: usize, n_later: usize) -> impl Iterator<Item = Result<Window>> {
        let middle = move |i: usize| self.episodes[i].len().saturating_sub(n_later) / 2;
        (0..self.episodes.len())
            .filter_map(move |i| self.window(i, middle(i), n_later, i as u64))
            .filter(move |window| window.as_ref().map_or(true, |window| window.n_later == n_later))
            .take(n)
    }

    /// The window of frame `t` drawn as `n_later` frames later, or as itself where the truth does not
    /// tell of that.
    fn window(
        &self,
        episode: usize,
        t: usize,
        n_later: usize,
        seed: u64,
    ) -> Option<Result<Window>> {
        let shots = self.episodes.get(episode)?;
        let from = shots.get(t)?;
        let to = shots.get(t + n_later).filter(|to| {
            let has_truth = !from.poses.is_empty() && from.poses.len() == to.poses.len();
            n_later == 0 || (has_truth && !from.bodies.is_empty())
        });
        let (to, n_later) = to.map_or((from, 0), |to| (to, n_later));
        let VideoConfig { n_particles, near_m, far_m, .. } = self.config;
        let draw = (seed, from.stamp.nanos());
        let pictures = [&from.pictures, &to.pictures].map(|kept| self.spool.read(kept));
        let [pictures, targets] = match pictures {
            [Ok(pictures), Ok(targets)] => [pictures, targets],
            [Err(error), _] | [_, Err(error)] => return Some(Err(error)),
        };
        let past = match self.past(shots, t, &pictures) {
            Ok(past) => past,
            Err(error) => return Some(Err(error)),
        };
        let seen = Seen::draw(&pictures, n_particles, [near_m, far_m], draw);
        let places = seen.positions.iter().zip(&seen.pixels);
        let moved = |(position, &(number, pixel)): (&[f32; 3], &(usize, usize))| match n_later {
            0 => *position,
            _ => carry(*position, from.bodies[number][pixel], &from.poses, &to.poses),
        };
        let positions = places.map(moved).collect();
        Some(Ok(Window { pictures, past, seen, positions, targets, n_later }))
    }

    /// What the cameras of `pictures` saw in the frames before `shots[t]` that the encoder looks at.
    fn past(&self, shots: &[Shot], t: usize, pictures: &[Picture]) -> Result<Vec<Vec<Picture>>> {
        let mut past: Vec<Vec<Picture>> = pictures.iter().map(|_| Vec::new()).collect();
        for shot in &shots[t.saturating_sub(self.config.encoder.n_past())..t] {
            for before in self.spool.read(&shot.pictures)? {
                let is_same =
                    |now: &&Picture| (now.camera, now.size) == (before.camera, before.size);
                if let Some(at) = pictures.iter().position(|now| is_same(&now)) {
                    past[at].push(before);
                }
            }
        }
        Ok(past)
    }
}
