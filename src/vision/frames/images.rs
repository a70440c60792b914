//! Colour and depth of one camera, paired by stamp.

use super::stream::{Nearest, Stamped, Stream};
use crate::message::{Image, PointCloud2, Stamp};

/// All that one camera saw at one time.
pub(super) enum Shot {
    /// Depth, and colour where the camera has it.
    Images {
        color: Option<Image>,
        depth: Image,
    },
    Points(PointCloud2),
}

impl Stamped for Shot {
    /// That of the depth image or the cloud.
    fn stamp(&self) -> Stamp {
        match self {
            Self::Images { depth, .. } => depth.header.stamp,
            Self::Points(cloud) => cloud.header.stamp,
        }
    }

    fn n_images(&self) -> u64 {
        match self {
            Self::Images { color, .. } => 1 + u64::from(color.is_some()),
            Self::Points(_) => 1,
        }
    }
}

/// Images (and clouds) that became part of nothing.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Losses {
    /// A partner should have been there.
    pub(super) unpaired: u64,
    /// Their source is faster than that of their partners.
    pub(super) surplus: u64,
    /// Nanoseconds of the closest pair that was not close enough, since the last pair that was.
    pub(super) closest: Option<u64>,
}

impl Losses {
    /// Counts images whose nearest partner that found none either lies `distance` ns away.
    pub(super) fn unpaired(&mut self, n_images: u64, distance: Option<u64>) {
        self.unpaired += n_images;
        self.closest = self.closest.into_iter().chain(distance).min();
    }
}

/// Images of one camera that wait for their partners.
pub(super) struct ImagePairer {
    color: Stream<Image>,
    depth: Stream<Image>,
    tolerance: u64,
    pub(super) losses: Losses,
}

impl ImagePairer {
    /// Pairs images within `tolerance` nanoseconds.
    pub(super) fn new(tolerance: u64, max_pending: usize) -> Self {
        let (color, depth) = (Stream::new(max_pending), Stream::new(max_pending));
        Self { color, depth, tolerance, losses: Losses::default() }
    }

    pub(super) fn set_tolerance(&mut self, tolerance: u64) {
        self.tolerance = tolerance;
    }

    /// Adds an image; false if one of its stamp has come already.
    pub(super) fn push(&mut self, is_depth: bool, image: Image) -> bool {
        let stream = if is_depth { &mut self.depth } else { &mut self.color };
        match stream.push(image) {
            Ok(lost) => {
                lost.into_iter().for_each(|lost| self.lose(is_depth, &lost));
                true
            }
            Err(_) => false,
        }
    }

    /// The oldest depth image whose colour image is there; `finished`: nothing more will come.
    pub(super) fn next(&mut self, finished: bool) -> Option<Shot> {
        loop {
            let stamp = self.depth.waiting().next()?.stamp();
            match self.color.nearest(stamp, self.tolerance, finished) {
                Nearest::Wait => return None,
                Nearest::At(i) if !self.belongs_to_next(stamp, i) => return self.take(i),
                Nearest::At(_) | Nearest::Nothing => {
                    let lost = self.depth.discard(0)?;
                    self.lose(true, &lost);
                }
            }
        }
    }

    /// Newest stamps of colour and depth.
    pub(super) fn newest(&self) -> [Option<Stamp>; 2] {
        [self.color.newest(), self.depth.newest()]
    }

    /// Forgets all times.
    pub(super) fn clear(&mut self) {
        self.give_up();
        self.color.forget();
        self.depth.forget();
        self.losses.closest = None;
    }

    /// Counts all that waits as unpaired.
    pub(super) fn give_up(&mut self) {
        while let Some(lost) = self.color.discard(0) {
            self.losses.unpaired(1, self.depth.unused_distance(lost.header.stamp));
        }
        while let Some(lost) = self.depth.discard(0) {
            self.losses.unpaired(1, self.color.unused_distance(lost.header.stamp));
        }
    }

    #[cfg(test)]
    pub(super) fn n_held(&self) -> u64 {
        (self.color.waiting().count() + self.depth.waiting().count()) as u64
    }

    fn belongs_to_next(&self, stamp: Stamp, color: usize) -> bool {
        let color = self.color.waiting().nth(color).map(Stamped::stamp);
        color.is_some_and(|color| self.depth.next_is_nearer(stamp, color))
    }

    /// The pair of the oldest depth image and colour image `i`; older colour images go.
    fn take(&mut self, i: usize) -> Option<Shot> {
        let color = self.color.take(i)?;
        let depth = self.depth.take(0)?;
        self.losses.closest = None;
        while let Some(lost) = self.color.pop_before(color.header.stamp) {
            self.lose(false, &lost);
        }
        Some(Shot::Images { color: Some(color), depth })
    }

    fn lose(&mut self, is_depth: bool, image: &Image) {
        let partners = if is_depth { &self.color } else { &self.depth };
        let stamp = image.header.stamp;
        match partners.explains(stamp, self.tolerance) {
            true => self.losses.surplus += 1,
            false => self.losses.unpaired(1, partners.unused_distance(stamp)),
        }
    }
}
