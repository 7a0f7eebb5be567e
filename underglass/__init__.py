"""Underglass: LLM inference, under glass.

The packages are `engine`, `server` and `visualizer`; the console command is `underglass`. This one has
the version and the lessons (`underglass lab`).
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("underglass")
except PackageNotFoundError:  # a clone that was never installed
    __version__ = "unknown"
