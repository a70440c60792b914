//! Images of all cameras, paired by stamp.

use crate::message::{Image, Stamp};
use std::collections::VecDeque;

/// Colour and depth of one camera.
pub(super) struct Pair {
    pub(super) color: Image,
    pub(super) depth: Image,
}

/// A pair of each camera, all within the tolerance of `stamp`.
pub(super) struct ImageSet {
    pub(super) stamp: Stamp,
    pub(super) pairs: Vec<Pair>,
}

/// Images that wait for their partners: two queues per camera, colour and depth.
pub(super) struct ImagePairer {
    queues: Vec<VecDeque<Image>>,
    tolerance_nanos: u64,
    max_pending: usize,
    /// Images that found no partners.
    pub(super) n_unpaired: u64,
}

impl ImagePairer {
    pub(super) fn new(n_cameras: usize, tolerance_secs: f64, max_pending: usize) -> Self {
        Self {
            queues: (0..2 * n_cameras).map(|_| VecDeque::new()).collect(),
            tolerance_nanos: nanos(tolerance_secs),
            max_pending: max_pending.max(1),
            n_unpaired: 0,
        }
    }

    pub(super) fn set_tolerance(&mut self, tolerance_secs: f64) {
        self.tolerance_nanos = nanos(tolerance_secs);
    }

    /// Adds an image; the set that it completes, if any. `camera` must be one of the cameras.
    pub(super) fn push(&mut self, camera: usize, is_depth: bool, image: Image) -> Option<ImageSet> {
        let queue = &mut self.queues[2 * camera + usize::from(is_depth)];
        let stamp = image.header.stamp;
        let at = queue.partition_point(|other| other.header.stamp < stamp);
        if queue.get(at).is_some_and(|other| other.header.stamp == stamp) {
            self.n_unpaired += 1; // the same image again
            return None;
        }
        queue.insert(at, image);
        if queue.len() > self.max_pending {
            queue.pop_front();
            self.n_unpaired += 1;
        }
        self.complete()
    }

    pub(super) fn clear(&mut self) {
        for queue in &mut self.queues {
            self.n_unpaired += queue.len() as u64;
            queue.clear();
        }
    }

    /// The oldest complete set around a depth image of the first camera; older images go.
    fn complete(&mut self) -> Option<ImageSet> {
        let references = self.queues.get(1)?.iter().map(|depth| depth.header.stamp);
        let (stamp, chosen) =
            references.filter_map(|stamp| Some((stamp, self.nearest(stamp)?))).next()?;
        let mut images = Vec::with_capacity(chosen.len());
        for (queue, i) in self.queues.iter_mut().zip(chosen) {
            self.n_unpaired += i as u64;
            queue.drain(..i);
            images.extend(queue.pop_front());
        }
        let mut images = images.into_iter();
        let mut pairs = Vec::with_capacity(self.queues.len() / 2);
        while let (Some(color), Some(depth)) = (images.next(), images.next()) {
            pairs.push(Pair { color, depth });
        }
        Some(ImageSet { stamp, pairs })
    }

    /// Index of the image nearest to `stamp` in each queue, if all are within the tolerance.
    fn nearest(&self, stamp: Stamp) -> Option<Vec<usize>> {
        let nearest = |queue: &VecDeque<Image>| {
            let distances = queue.iter().map(|image| image.header.stamp.abs_diff(stamp));
            let (i, distance) = distances.enumerate().min_by_key(|&(_, distance)| distance)?;
            (distance <= self.tolerance_nanos).then_some(i)
        };
        self.queues.iter().map(nearest).collect()
    }
}

fn nanos(secs: f64) -> u64 {
    Stamp::from_secs(secs).nanos().unsigned_abs()
}
