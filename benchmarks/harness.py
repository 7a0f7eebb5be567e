"""Time works in turns, and save what was measured with the machine that it was measured on.

`build/benchmarks/FIGURE.json` is for comparing runs. It is not in git, because its numbers belong to
one machine.
"""

import json
import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

FOLDER = Path(__file__).parent.parent / "build" / "benchmarks"


@dataclass
class Ratio:
    """How much faster one work is than another: the ratio of their speeds, pair by pair."""

    ratios: list[float]

    @classmethod
    def of(cls, first: Sequence[float], second: Sequence[float]) -> "Ratio":
        """Return the ratio of speeds from seconds that were measured in turns."""
        return cls([two / one for one, two in zip(first, second, strict=True)])

    @property
    def quartiles(self) -> list[float]:
        """Lower end of the middle half, median, upper end."""
        return statistics.quantiles(self.ratios, n=4)

    def figures(self) -> dict[str, object]:
        """Return the numbers for `save`."""
        low, middle, high = self.quartiles
        return {"median": middle, "middle_half": [low, high], "pairs": len(self.ratios)}

    def __str__(self) -> str:
        low, middle, high = self.quartiles
        return f"{middle:.3f} (middle half {low:.3f} to {high:.3f}, {len(self.ratios)} pairs)"


def in_turns(
    name: str, works: Mapping[str, Callable[[], float]], rounds: int
) -> dict[str, list[float]]:
    """Return the seconds that each work reports in each round; a round runs each once: AB, BA, AB, ...

    The order of the tries may matter, so every work takes every position.
    """
    seconds: dict[str, list[float]] = {work: [] for work in works}
    order = list(works)
    with tqdm(total=rounds * len(works), desc=name, leave=False, disable=None) as bar:
        for number in range(rounds):
            first = number % len(order)
            for work in order[first:] + order[:first]:
                seconds[work].append(works[work]())
                bar.update()
    return seconds


def timed(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds that `work` takes."""
    start = clock()
    work()
    return clock() - start


def status(process: int | str = "self") -> dict[str, int]:
    """Return the sizes in /proc/PROCESS/status, such as VmRSS and VmHWM, in bytes; Linux only."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    pairs = [line.split(":") for line in lines if line.endswith("kB")]
    return {name: int(value.split()[0]) * 1024 for name, value in pairs}


def save(name: str, figures: Mapping[str, object]) -> None:
    """Write `figures` (anything that JSON holds), and print where they are."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    file = FOLDER / f"{name}.json"
    machine = _machine()
    record = {"name": name, "machine": machine, "figures": figures}
    file.write_text(json.dumps(record, indent=2) + "\n")
    print("measured on:", ", ".join(f"{name} {value}" for name, value in machine.items()))
    print("saved:", os.path.relpath(file))


# What makes products fast on x86 and on ARM, in torch's names.
_INSTRUCTIONS = re.compile("avx2$|avx512_f$|.*(vnni|bf16|fp16|amx|i8mm)|neon|sve|sme")


def _machine() -> dict[str, object]:
    """Describe the machine and the versions that a number depends on."""
    import torch

    info = Path("/proc/cpuinfo")  # on Linux, where platform.processor() is empty
    found = re.search(r"^model name\s*: (.+)$", info.read_text(), re.M) if info.is_file() else None
    has = [name for name, value in torch.cpu.get_capabilities().items() if value is True]
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "cpu": found[1] if found else platform.processor() or platform.machine(),
        "instructions": " ".join(sorted(filter(_INSTRUCTIONS.match, has))),
        "cores": len(affinity(0)) if affinity else os.cpu_count(),
        "torch": torch.__version__,
        "torch_threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "system": platform.system(),
    }
