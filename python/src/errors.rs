//! Errors as exceptions: the classes are those of `forecloud/errors.py`, the words the library's.

use forecloud::Error;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// Kinds of exceptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Input,
    Config,
    Model,
    Recording,
    File,
    Device,
    Robot,
    State,
    Fork,
    Internal,
}

impl Kind {
    /// Name of its class.
    fn class(self) -> &'static str {
        match self {
            Self::Input => "InputError",
            Self::Config => "ConfigError",
            Self::Model => "ModelError",
            Self::Recording => "RecordingError",
            Self::File => "FileError",
            Self::Device => "DeviceError",
            Self::Robot => "RobotError",
            Self::State => "StateError",
            Self::Fork => "ForkError",
            Self::Internal => "InternalError",
        }
    }

    /// Which it is of a library's error.
    fn of(error: &Error) -> Self {
        match error {
            Error::Io { .. } | Error::Output { .. } => Self::File,
            Error::Device { .. } => Self::Device,
            Error::Config { .. } => Self::Config,
            Error::Model { .. } | Error::Checkpoint { .. } => Self::Model,
            Error::Message { .. }
            | Error::Bag { .. }
            | Error::MissingTopics { .. }
            | Error::NoWindow { .. } => Self::Recording,
            Error::Urdf { .. }
            | Error::MissingJoints { .. }
            | Error::Plan { .. }
            | Error::NoRobot => Self::Robot,
            Error::NoPrediction => Self::State,
            _ => Self::Input,
        }
    }
}

/// An exception of this kind.
pub fn raise(kind: Kind, message: impl Into<String>) -> PyErr {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let message = message.into();
    Python::attach(|py| {
        let module = MODULE
            .get_or_try_init(py, || py.import("forecloud.errors").map(Bound::unbind))
            .map(|module| module.bind(py).clone());
        let class = module.and_then(|module| module.getattr(kind.class()));
        match class.and_then(|class| Ok(class.cast_into::<PyType>()?)) {
            Ok(class) => PyErr::from_type(class, message),
            Err(error) => error,
        }
    })
}

/// The exception of a library's error.
pub fn of(error: Error) -> PyErr {
    raise(Kind::of(&error), error.to_string())
}
