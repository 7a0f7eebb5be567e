"""The built modules of the front end, which are not in git and so are missing from a fresh clone."""

from pathlib import Path

from engine.core.extras import MissingExtraError

STATIC = Path(__file__).parent / "static"


def built(name: str) -> Path:
    """Return the file of a module such as "board.js". Raises MissingExtraError if it is not built."""
    file = STATIC / name
    if not file.exists():
        raise MissingExtraError(
            f"the front end's visualizer/static/{name} is missing, because a clone does not contain "
            "it: build it with `make setup`, or without make with `python make.py setup`"
        )
    return file
