//! What the spinning thread leaves for the predicting one, until that takes it: the newest frame, never a
//! queue, and what to do before it.
//!
//! Frames lie here only while nobody can look at them. Those that newer ones replaced go to the predictor with
//! the newest, unpredicted: past frames are kept in one place, [`forecloud::predict::history`].

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError, mpsc};
use std::time::Instant;

use r2r::ServiceRequest;
use r2r::forecloud::srv::PoseAt;

use forecloud::planner::candidates::Snapshot;
use forecloud::predict::config::PredictorConfig;
use forecloud::predict::history::MAX_KEPT;
use forecloud::vision::frames::FrameCounts;

/// A frame and what it took to make it.
pub struct FrameJob<F> {
    /// The frame.
    pub frame: F,
    /// Arrival of its last image.
    pub arrived: Instant,
    /// When joints and transforms had come, too, or were no longer waited for.
    pub whole: Instant,
    /// Time that decoding and pairing its messages took, milliseconds.
    pub decode_ms: f32,
    /// What became of the messages until then.
    pub counts: FrameCounts,
    /// Frames that a newer one replaced in the mailbox until then.
    pub n_replaced: u64,
}

/// What to do before the next frame; a newer order replaces the older one of its kind.
#[derive(Default)]
pub struct Orders {
    /// Forget all frames.
    pub reset: bool,
    /// Stamps went back: what was predicted says nothing of what comes. The predictor sees that by itself.
    pub jumped: bool,
    /// A new robot description (URDF).
    pub robot: Option<String>,
    /// New settings.
    pub settings: Option<Settings>,
    /// Whether to predict from frames, or to let them pass.
    pub halt: Option<Halt>,
    /// Where candidates are to start from; those of several threads.
    pub snapshots: Vec<SnapshotRequest>,
    /// Who asks where objects will be.
    pub poses: Vec<ServiceRequest<PoseAt::Service>>,
}

impl Orders {
    fn are_none(&self) -> bool {
        let Self { reset, jumped, robot, settings, halt, snapshots, poses } = self;
        let are_none = robot.is_none() && settings.is_none() && halt.is_none();
        let are_asked = !snapshots.is_empty() || !poses.is_empty();
        !reset && !jumped && are_none && !are_asked
    }
}

/// Whether frames are let pass unpredicted, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Halt {
    /// They are predicted from.
    #[default]
    No,
    /// `~/pause` was called.
    Paused,
    /// The node is not active.
    Inactive,
}

impl Halt {
    /// Why nothing is predicted, and what to do to have it.
    pub fn why(self) -> Option<&'static str> {
        match self {
            Self::No => None,
            Self::Paused => Some("predicting is paused: call ~/pause with data: false to resume"),
            Self::Inactive => Some("the node is inactive: call ~/change_state with `activate`"),
        }
    }
}

/// Settings that may change between two frames.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// How the model is run.
    pub predictor: PredictorConfig,
    /// Whether to let frames pass while nobody subscribes.
    pub idle_without_subscribers: bool,
}

/// Where to send a snapshot, of the newest frame that was predicted from or of the next one.
pub type SnapshotRequest = mpsc::Sender<Answer>;

/// What comes of a [`SnapshotRequest`].
pub enum Answer {
    /// It is fulfilled.
    Snapshot(Box<Snapshot>),
    /// Not yet, and why; another answer may follow.
    NotYet(String),
    /// It won't be, and why.
    Refused(String),
}

/// A robot description that can't be used, and the one that is used still: the way back from the
/// predicting thread, for frames are made with the description, too.
pub struct Refusal {
    /// The newest one.
    pub refused: String,
    /// The one before.
    pub in_use: String,
}

/// A slot for one frame and for orders; a newer one replaces the older.
pub struct Mailbox<F> {
    slot: Mutex<Slot<F>>,
    filled: Condvar,
}

struct Slot<F> {
    newest: Option<FrameJob<F>>,
    replaced: VecDeque<F>,
    orders: Orders,
    closed: bool,
    n_replaced: u64,
}

/// What came out of the mailbox; at least a frame or an order.
pub struct Batch<F> {
    /// The newest frame.
    pub newest: Option<FrameJob<F>>,
    /// The last frames that it and others replaced since the last batch, oldest first: as many as a history
    /// keeps.
    pub replaced: VecDeque<F>,
    /// What to do before the frames are used.
    pub orders: Orders,
}

/// See [`Mailbox::close_on_drop`].
pub struct CloseOnDrop<'a, F>(&'a Mailbox<F>);

impl<F> Drop for CloseOnDrop<'_, F> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<F> Default for Mailbox<F> {
    fn default() -> Self {
        let (replaced, orders) = (VecDeque::new(), Orders::default());
        let slot = Slot { newest: None, replaced, orders, closed: false, n_replaced: 0 };
        Self { slot: Mutex::new(slot), filled: Condvar::new() }
    }
}

impl<F> Mailbox<F> {
    /// Leaves a frame; replaces one that still lies there, and counts that.
    pub fn put_frame(&self, mut job: FrameJob<F>) {
        let mut slot = self.lock();
        if let Some(replaced) = slot.newest.take() {
            slot.n_replaced += 1;
            slot.replaced.push_back(replaced.frame);
            if slot.replaced.len() > MAX_KEPT {
                slot.replaced.pop_front();
            }
        }
        job.n_replaced = slot.n_replaced;
        slot.newest = Some(job);
        self.filled.notify_one();
    }

    /// Leaves an order; not once the mailbox is closed.
    pub fn order(&self, give: impl FnOnce(&mut Orders)) {
        let mut slot = self.lock();
        if !slot.closed {
            give(&mut slot.orders);
            self.filled.notify_one();
        }
    }

    /// Orders a reset; a frame that lies there is of the time before, and counts as replaced.
    pub fn reset(&self) {
        let mut slot = self.lock();
        slot.n_replaced += u64::from(slot.newest.take().is_some());
        slot.replaced.clear();
        slot.orders.reset = true;
        self.filled.notify_one();
    }

    /// Waits for something to lie there and takes it; `None` once the mailbox is closed.
    pub fn take(&self) -> Option<Batch<F>> {
        let empty =
            |slot: &mut Slot<F>| !slot.closed && slot.newest.is_none() && slot.orders.are_none();
        let mut slot =
            self.filled.wait_while(self.lock(), empty).unwrap_or_else(PoisonError::into_inner);
        (!slot.closed).then(|| Batch {
            newest: slot.newest.take(),
            replaced: std::mem::take(&mut slot.replaced),
            orders: std::mem::take(&mut slot.orders),
        })
    }

    /// Wakes the reader for good; what still lies there is not read, and who asked for a snapshot is not
    /// left waiting.
    pub fn close(&self) {
        let mut slot = self.lock();
        slot.closed = true;
        slot.orders.snapshots.clear();
        self.filled.notify_all();
    }

    /// Who asked where objects will be and was not answered before the mailbox was closed.
    pub fn take_unanswered(&self) -> Vec<ServiceRequest<PoseAt::Service>> {
        std::mem::take(&mut self.lock().orders.poses)
    }

    /// Closes the mailbox when what is returned is dropped, be it by a panic.
    pub fn close_on_drop(&self) -> CloseOnDrop<'_, F> {
        CloseOnDrop(self)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Slot<F>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(frame: u32) -> FrameJob<u32> {
        let counts = FrameCounts::default();
        let now = Instant::now();
        FrameJob { frame, arrived: now, whole: now, decode_ms: 0.0, counts, n_replaced: 0 }
    }

    #[test]
    fn the_newest_frame_replaces_and_is_counted() {
        let mailbox = Mailbox::default();
        (1..=3).for_each(|frame| mailbox.put_frame(job(frame)));
        mailbox.order(|orders| orders.robot = Some("urdf".into()));
        let batch = mailbox.take().unwrap();
        let newest = batch.newest.unwrap();
        assert_eq!((newest.frame, newest.n_replaced), (3, 2));
        assert_eq!(batch.replaced, [1, 2]);
        assert_eq!(batch.orders.robot.as_deref(), Some("urdf"));
    }

    #[test]
    fn replaced_frames_are_bounded() {
        let mailbox = Mailbox::default();
        (0..100).for_each(|frame| mailbox.put_frame(job(frame)));
        let replaced = mailbox.take().unwrap().replaced;
        assert_eq!((replaced.len(), replaced.back()), (MAX_KEPT, Some(&98)));
    }

    #[test]
    fn a_reset_drops_what_lies_there_and_counts_it() {
        let mailbox = Mailbox::default();
        (1..=3).for_each(|frame| mailbox.put_frame(job(frame)));
        mailbox.reset();
        mailbox.put_frame(job(4));
        let batch = mailbox.take().unwrap();
        let newest = batch.newest.unwrap();
        assert!(batch.orders.reset && batch.replaced.is_empty());
        assert_eq!((newest.frame, newest.n_replaced), (4, 3));
        mailbox.reset();
        assert!(mailbox.take().unwrap().newest.is_none(), "an order alone wakes the reader");
    }

    #[test]
    fn closing_ends_who_waits_for_a_snapshot() {
        let mailbox = Mailbox::<u32>::default();
        let ask = || {
            let (request, answers) = mpsc::channel();
            mailbox.order(|orders| orders.snapshots.push(request));
            answers
        };
        let before = ask();
        assert_eq!(before.try_recv().err(), Some(mpsc::TryRecvError::Empty));
        mailbox.close();
        for answers in [before, ask()] {
            assert_eq!(answers.try_recv().err(), Some(mpsc::TryRecvError::Disconnected));
        }
    }

    #[test]
    fn closing_ends_a_waiting_reader() {
        let mailbox = Mailbox::<u32>::default();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| mailbox.take().is_none());
            mailbox.close();
            assert!(reader.join().unwrap());
        });
    }

    #[test]
    fn a_panic_of_the_writer_ends_a_waiting_reader() {
        let mailbox = Mailbox::<u32>::default();
        let ended = std::thread::scope(|scope| {
            let reader = scope.spawn(|| mailbox.take().is_none());
            let writer = scope.spawn(|| {
                let _close = mailbox.close_on_drop();
                panic!("as a bug in the spinning thread would");
            });
            writer.join().is_err() && reader.join().unwrap()
        });
        assert!(ended);
    }
}
