"""The built modules of the front end, which are not in git and so are missing from a fresh clone."""

from pathlib import Path

from engine.core.extras import MissingExtraError

STATIC = Path(__file__).parent / "static"
MODULES = STATIC / "modules"  # what a server's pages load


def built(name: str) -> Path:
    """Return the file of a module such as "board.js". Raises MissingExtraError if it is not built."""
    file = STATIC / name
    if not file.exists():
        raise MissingExtraError(
            f"the front end's visualizer/static/{name} is missing, because a clone does not contain "
            "it: build it with `make setup`, or without make with `python make.py setup`"
        )
    return file


def with_board(part: str) -> str:
    """Return the module of a part such as "cluster.js": that of the board, then the part.

    It needs no other module: a tour, which boards load when it is wanted, is in it.
    """
    board, mark, _ = built("board.js").read_text("utf-8").partition("//# exports\n")
    return board + mark + "".join(built(one).read_text("utf-8") for one in ("tour.js", part))


def part_of_board(name: str) -> bytes:
    """Return "tour.js" or "seat.js" for a board that loads it when it is wanted."""
    return (built(name).read_text("utf-8") if name == "tour.js" else with_board(name)).encode()


def page_module() -> str:
    """Return the module of a page with a board, which needs no other."""
    return "".join(built(one).read_text("utf-8") for one in ("board.js", "tour.js"))
