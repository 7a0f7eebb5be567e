"""Open a file in a page, in Pyodide: any trace that `underglass open` can read, up to a size limit."""

from pathlib import Path

from page_cells import send
from visualizer.packed import packed_log, run_in_words, with_more
from visualizer.sources import read_source

# Bytes of the log to show. Its events take about twenty times as much memory, and a page has 2 GB.
LAST = 16_000_000
MAX_UNPACKED = 1 << 30


def open_file(path: str) -> None:
    """Read the file, delete it, and send the page its log. Raises LogError for an unknown file."""
    notes: list[str] = []
    with Path(path).open("rb") as file:
        Path(path).unlink()
        log = read_source(file, LAST, limit=MAX_UNPACKED, tell=notes.append)
    packed = packed_log(log, index=False)  # Python is slower here, and the page waits for it
    module = "cluster" if packed.is_cluster else "board"
    said = {"log": packed.log, "module": module, "options": packed.options, "text": " ".join(notes)}
    send({"kind": "opened"} | said)


def find_regimes(path: str) -> None:
    """Read the file, delete it, and send the page what is said of the whole run."""
    with Path(path).open("rb") as file:
        Path(path).unlink()
        log = read_source(file, LAST, limit=MAX_UNPACKED)
    send({"kind": "regimes", "options": {"run": with_more(run_in_words(log), log)}})
