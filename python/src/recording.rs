//! Recordings: their frames, one after the other, and their truth.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use forecloud::message::Stamp;
use forecloud::vision::cloud::Workspace;
use forecloud::vision::frames::{Frame as Inner, FrameCounts, FramesConfig, Problem};
use forecloud_bag::recording::{BodyIds, BodyKind, Recording as Opened};
use forecloud_eval::{Class, TrueMotion};
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArrayDyn};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{self, Kind, raise};
use crate::frame::Frame;
use crate::model::{Model, json};
use crate::{arrays, work};

/// Frames that are read ahead.
const AHEAD: usize = 2;
/// The process that first opened a recording.
static FIRST_PID: AtomicU32 = AtomicU32::new(0);

/// A recording. A forked process opens it anew: two would read each other's places in one open file.
#[pyclass(frozen, module = "forecloud._native")]
pub struct Recording {
    /// Whence, whatever the current folder is by then.
    absolute: PathBuf,
    config: FramesConfig,
    /// Locked only while the interpreter is held, as it is by who forks: no child finds it locked.
    opened: Mutex<(u32, Arc<Opened>)>,
}

/// What the thread that reads hands over.
enum Handed {
    Frame(Box<Inner>, Option<BodyIds>),
    End(FrameCounts, Option<String>),
    Panic(PyErr),
}

/// Frames in order.
#[pyclass(frozen, module = "forecloud._native")]
pub struct Frames {
    /// None behind the end.
    receiver: Mutex<Option<Receiver<Handed>>>,
    counts: Mutex<Option<(FrameCounts, Option<String>)>>,
    pid: u32,
}

impl Drop for Frames {
    /// In a forked process what the reading thread may hold is left alone.
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            let receiver = self.receiver.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(receiver.take());
        }
    }
}

impl Recording {
    /// The recording as this process opened it.
    fn inner(&self, py: Python<'_>) -> PyResult<Arc<Opened>> {
        let pid = std::process::id();
        {
            let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
            if opened.0 == pid {
                return Ok(opened.1.clone());
            }
        }
        let (path, config) = (&self.absolute, self.config.clone());
        let anew = work::run(py, |_| Opened::open(path, config))?.map_err(errors::of)?;
        let anew = Arc::new(anew);
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *opened, (pid, anew.clone()));
        // Its files are the parent's to close.
        if before.0 != pid {
            std::mem::forget(before.1);
        }
        Ok(anew)
    }

    /// What never changes, however often it is opened.
    fn first(&self) -> Arc<Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }
}

#[pymethods]
impl Recording {
    /// Opens one; `arguments` are the tool's.
    #[new]
    fn new(py: Python<'_>, path: PathBuf, arguments: Vec<String>) -> PyResult<Self> {
        let config = forecloud_cli::frames_config(&arguments)
            .map_err(|problem| raise(Kind::Config, problem))?;
        let pid = std::process::id();
        let first = FIRST_PID.compare_exchange(0, pid, Ordering::AcqRel, Ordering::Acquire);
        if config.level_camera && first.is_err_and(|first| first != pid) {
            return Err(raise(
                Kind::Fork,
                "level_camera works on threads that a forked process does not have: take \
                 multiprocessing's 'spawn'",
            ));
        }
        let absolute = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
        let kept = config.clone();
        let opened = work::run(py, |_| Opened::open(&path, config))?.map_err(errors::of)?;
        Ok(Self { absolute, config: kept, opened: Mutex::new((pid, Arc::new(opened))) })
    }

    fn frames(&self, py: Python<'_>) -> PyResult<Frames> {
        let (sender, receiver) = sync_channel(AHEAD);
        let recording = self.inner(py)?;
        // Not of the pool: it waits for who takes the frames.
        let play = move || {
            let played = catch_unwind(AssertUnwindSafe(|| {
                recording.play(|frame, ids| {
                    // Nobody takes them any more.
                    sender.send(Handed::Frame(Box::new(frame), ids)).map_err(drop)
                })
            }));
            let end = match played {
                Ok(Ok((counts, problems))) => {
                    Handed::End(counts, problems.first().map(Problem::text))
                }
                Ok(Err(())) => return,
                Err(panic) => Handed::Panic(work::internal(&*panic)),
            };
            let _ = sender.send(end);
        };
        std::thread::Builder::new()
            .name("forecloud-frames".into())
            .spawn(play)
            .map_err(|error| raise(Kind::Internal, format!("cannot start a thread: {error}")))?;
        Ok(Frames {
            receiver: Mutex::new(Some(receiver)),
            counts: Mutex::default(),
            pid: std::process::id(),
        })
    }

    #[getter]
    fn path(&self) -> PathBuf {
        self.first().bag().path().to_owned()
    }

    #[getter]
    fn start_ns(&self) -> Option<i64> {
        self.first().bag().start().map(Stamp::nanos)
    }

    #[getter]
    fn end_ns(&self) -> Option<i64> {
        self.first().bag().end().map(Stamp::nanos)
    }

    /// Topics: name, type, number of messages.
    #[getter]
    fn topics(&self) -> Vec<(String, String, u64)> {
        let opened = self.first();
        let topics = opened.bag().topics().iter();
        topics.map(|t| (t.name.to_string(), t.message_type.clone(), t.n_messages)).collect()
    }

    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.first().bag().warnings().to_vec()
    }

    #[getter]
    fn cameras(&self) -> Vec<String> {
        let opened = self.first();
        let topics = &opened.frames_config().topics;
        topics.cameras.iter().map(|camera| camera.name.clone()).collect()
    }

    #[getter]
    fn world_frame(&self) -> String {
        self.first().frames_config().world_frame.clone()
    }

    #[getter]
    fn robot_lack(&self) -> Option<String> {
        self.first().robot_lack()
    }

    fn robot_description(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let recording = self.inner(py)?;
        work::run(py, |_| recording.robot_description())?.map_err(errors::of)
    }

    /// Box and origin where the cameras see a scene first.
    fn place(&self, py: Python<'_>, model: &Model) -> PyResult<Option<([[f32; 3]; 2], [f32; 3])>> {
        let (recording, usual) = (self.inner(py)?, model.inner.config.workspace);
        let place = work::run(py, |_| recording.place(&usual))?.map_err(errors::of)?;
        Ok(place.map(|place| {
            let Workspace { min, max } = place.workspace;
            ([min, max], place.origin)
        }))
    }

    /// Task, split, and name and kind of each body; none without truth.
    #[getter]
    fn truth(&self) -> Option<(String, String, Vec<(String, &'static str)>)> {
        let opened = self.first();
        let truth = opened.truth()?;
        let kind = |kind| match kind {
            BodyKind::Static => "static",
            BodyKind::Robot => "robot",
            BodyKind::Object => "object",
        };
        let bodies = truth.bodies.iter().map(|body| (body.name.clone(), kind(body.kind)));
        Some((truth.task.clone(), truth.split.clone(), bodies.collect()))
    }

    /// Poses of the bodies, `[n, 7]`.
    fn body_poses<'py>(
        &self,
        py: Python<'py>,
        stamp_ns: i64,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let opened = self.first();
        let truth = opened.truth();
        let poses = truth.and_then(|truth| truth.poses(Stamp::from_nanos(stamp_ns)));
        let Some(poses) = poses else { return Ok(None) };
        let flat: Vec<f64> = poses.iter().flat_map(arrays::pose).collect();
        Ok(Some(PyArray1::from_vec(py, flat).reshape([poses.len(), 7])?.into_any()))
    }

    /// Where points of `frame` truly are after each step, and what each is in it: `[steps, n, 3]` and
    /// `[steps, n]`; none where the truth does not tell.
    fn true_motion<'py>(
        &self,
        py: Python<'py>,
        frame: &Frame,
        positions: PyReadonlyArrayDyn<'py, f32>,
        sources: PyReadonlyArrayDyn<'py, u32>,
        step_secs: f64,
        horizon: usize,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let points = arrays::points("positions", &positions)?;
        let sources = arrays::slice("sources", &sources, [points.len() as isize])?;
        if horizon > 1000 || !(1e-3..=1e3).contains(&step_secs) {
            return Err(arrays::input(format!(
                "{horizon} steps of {step_secs} s: at most 1000, each of 0.001 to 1000 s"
            )));
        }
        let opened = self.first();
        let (Some(truth), Some(ids)) = (opened.truth(), &frame.ids) else { return Ok(None) };
        let at = (&points[..], sources);
        let stamp = frame.inner.stamp;
        let Some(motion) = TrueMotion::follow(truth, ids, at, stamp, step_secs, horizon) else {
            return Ok(None);
        };
        let (n, ahead) = (points.len(), &motion.positions[1..]);
        let positions: Vec<f32> = ahead.iter().flatten().flatten().copied().collect();
        let classes: Vec<u8> = motion.classes.iter().flatten().map(|&class| code(class)).collect();
        let dict = PyDict::new(py);
        dict.set_item("back", arrays::rows(py, &motion.back)?)?;
        let positions = PyArray1::from_vec(py, positions).reshape([ahead.len(), n, 3])?;
        dict.set_item("positions", positions)?;
        let classes = PyArray1::from_vec(py, classes).reshape([motion.classes.len(), n])?;
        dict.set_item("classes", classes)?;
        Ok(Some(dict))
    }
}

/// Number of a class, in the order of `forecloud.CLASSES`.
fn code(class: Class) -> u8 {
    match class {
        Class::Moving | Class::Sudden => 0,
        Class::Resting => 1,
        Class::Robot => 2,
        Class::Static => 3,
    }
}

#[pymethods]
impl Frames {
    /// The next frame; none behind the last.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Frame>> {
        if self.pid != std::process::id() {
            return Err(raise(
                Kind::Fork,
                "these frames are read by a thread that the forked process does not have: iterate the \
                 recording anew in it",
            ));
        }
        py.detach(|| {
            let mut receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner);
            loop {
                let Some(open) = &*receiver else { return Ok(None) };
                match open.recv_timeout(work::LOOK) {
                    Ok(Handed::Frame(frame, ids)) => {
                        let (inner, ids) = (Arc::from(frame), ids.map(Arc::new));
                        return Ok(Some(Frame { inner, ids }));
                    }
                    Ok(Handed::End(counts, problem)) => {
                        let mut kept = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
                        *kept = Some((counts, problem));
                        *receiver = None;
                    }
                    Ok(Handed::Panic(error)) => {
                        *receiver = None;
                        return Err(error);
                    }
                    Err(RecvTimeoutError::Timeout) => Python::attach(|py| py.check_signals())?,
                    Err(RecvTimeoutError::Disconnected) => *receiver = None,
                }
            }
        })
    }

    /// What became of the messages, as JSON, and the first cause; none before the end.
    fn counts(&self) -> PyResult<Option<(String, Option<String>)>> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.as_ref().map(|(counts, problem)| Ok((json(counts)?, problem.clone()))).transpose()
    }
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Recording>()?;
    module.add_class::<Frames>()
}
