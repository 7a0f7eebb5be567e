"""Underglass: LLM inference, under glass.

The packages are `engine`, `server` and `visualizer`; the console command is `underglass`. This package
has the version and the lessons (`underglass lab`), and keeps our packages apart from files of the same
names.
"""

__version__: str


def __getattr__(name: str) -> str:
    """Return the version. It is looked up lazily because `importlib.metadata` takes 30 ms to import."""
    if name != "__version__":
        raise AttributeError(f"module 'underglass' has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("underglass")
    except PackageNotFoundError:  # a clone that was never installed
        return "unknown"
