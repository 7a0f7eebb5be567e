"""Importing this module checks that no file hides the packages `engine`, `server` and `visualizer`.

A learner of this course gives these names to files as well, and Python looks for a module in the
working directory first: in a notebook, with `python -m` and with `python -c`. The modules that a
notebook or `python -m` imports first import this one before any other of ours, so that the error names
the file.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]

for _name in ("engine", "server", "visualizer"):
    _spec = find_spec(_name)
    if _spec and _spec.origin and Path(_spec.origin).resolve().parents[1] != _ROOT:
        # `python -m` imports a package before it replaces this argument. A command needs no traceback.
        _error = SystemExit if sys.argv[:1] == ["-m"] else ImportError
        raise _error(
            f"{_spec.origin} hides Underglass's package {_name}: rename this file, then restart Python"
        )
