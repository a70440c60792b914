"""The command `forecloud`: the tool, and `forecloud view`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path


def main() -> int:
    """Runs the command with the process's arguments; returns its exit code."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["view"]:
        from .view import command

        return command(arguments[1:])
    if arguments[:1] == ["cluster"]:
        from .cluster import command

        return command(arguments[1:])
    from . import _native

    # The shipped models lie beside this file.
    os.environ.setdefault("FORECLOUD_SHARE", str(Path(__file__).parent))
    # As of a program: Ctrl-C ends it (training with a checkpoint) without Python's say.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    code = _native.run_tool(["forecloud", *arguments])
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print("\nOf the Python package:\n  view        Look at a recording and its predictions in rerun\n  cluster     Replay, label and train on many machines, by Ray")
        sys.stdout.flush()
    return code


if __name__ == "__main__":
    sys.exit(main())
