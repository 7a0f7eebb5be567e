"""Translate the recordings of vLLM in `tests/fixtures/vllm` for the gallery.

python -m tests.recorders.scenarios         # after `make record-vllm-examples`
"""

import gzip
import json
from pathlib import Path

from engine.core.log.vocabulary import RunStarted
from visualizer.scenario import FOLDER, RECORDED
from visualizer.sources import read_source

RECORDINGS = Path(__file__).parents[1] / "fixtures" / "vllm"


def translated(name: str) -> bytes:
    """Return a recording as the lines of our own log, undated."""
    log = read_source(RECORDINGS / f"{name}.jsonl.gz")
    started = log[0]
    assert isinstance(started, RunStarted)
    started.t.clear()
    return log.to_bytes()


if __name__ == "__main__":
    for scenario in json.loads(RECORDED.read_text("utf-8")):
        file = FOLDER / f"{scenario}.jsonl.gz"
        file.write_bytes(gzip.compress(translated(scenario), mtime=0))
