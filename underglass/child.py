"""How a program of ours starts another Python that imports our packages.

The child runs with `-P`, so that it looks for no module in its working directory, where a learner's
`engine.py` would hide our package. Unlike PYTHONSAFEPATH, the flag reaches no program that the child
starts.
"""

import os
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]


def python(module: str, *arguments: object) -> list[str]:
    """Return the command that runs a module of ours. It needs `environment()`."""
    return [sys.executable, "-P", "-m", module, *map(str, arguments)]


def environment() -> dict[str, str]:
    """Return this process's environment, in which a child finds our packages.

    Python finds an installed package by itself, and a clone that was never installed in PYTHONPATH.
    """
    if _ROOT.name in ("site-packages", "dist-packages"):
        return dict(os.environ)
    paths = [str(_ROOT), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
