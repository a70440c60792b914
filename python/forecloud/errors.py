"""Exceptions. Each message names the place and the remedy; all are of `ForecloudError`."""


class ForecloudError(Exception):
    """Anything that Forecloud refuses or that fails in it."""


class InputError(ForecloudError, ValueError):
    """Arrays or images that make no sense: shapes, types, numbers that are not finite, too few points."""


class ConfigError(InputError):
    """A setting that makes no sense; the message says what is allowed."""


class RobotError(InputError):
    """A robot description, joints or a plan that cannot be used, or that are missing."""


class ModelError(ForecloudError):
    """A model file that cannot be used: of another version, damaged, or none."""


class RecordingError(ForecloudError):
    """A recording that cannot be read: damaged, or without the topics that frames need."""


class FileError(ForecloudError, OSError):
    """A file that cannot be read or written."""


class DeviceError(ForecloudError, RuntimeError):
    """A GPU that is not there, too old, or failing."""


class StateError(ForecloudError, RuntimeError):
    """A call at the wrong time: of a predictor that is at work in another thread, for instance."""


class ForkError(StateError):
    """A use after a fork of what does not follow into the forked process."""


class ToolError(ForecloudError, RuntimeError):
    """A command of the tool that failed, or whose options are wrong.

    `exit_code` is the tool's; `output` all that it said.
    """

    def __init__(self, message: str, exit_code: int = 1, output: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.output = output


class InternalError(ForecloudError, RuntimeError):
    """A fault of Forecloud itself; worth a report."""


class MissingExtra(ForecloudError, ImportError):
    """A package that an extra brings, and that is not installed or of another version."""
