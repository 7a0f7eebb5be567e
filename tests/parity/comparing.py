"""Compare this project's engine with a recording of vLLM.

    PYTHONPATH=notebooks python -m tests.parity.comparing                   # the committed recording
    PYTHONPATH=notebooks python -m tests.parity.comparing /tmp/fresh.gz     # another one

Prints the share of equal workloads by stratum, and the kinds of first differences.
"""

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from engine.core.config import EngineConfig
from parity.records import DECISIONS_OF_VLLM, Recording, Step, Workload, read
from parity.replay import replay

FREE, SHARING, IDS = "different free counts", "different sharing", "different block numbers"
CAUSES = {  # of the differences that are left
    IDS: "without a prefix cache, the first of a request's released blocks is reused first, in vLLM "
    "the last; and vLLM still finds blocks of a victim that was scheduled in the same step"
}


def first_difference(ours: list[Step], theirs: list[Step]) -> str:
    """Return the name of the first decision that differs, or "" if all are equal."""
    for our, their in zip(ours, theirs, strict=False):
        for field, one in our.decisions.items():
            if one != their.decisions[field]:
                return field
    return "steps" if len(ours) != len(theirs) else ""


def shares_equally(ours: list[Step], theirs: list[Step]) -> bool:
    """Return whether the block tables are equal up to the numbers of the blocks."""
    return all(
        _renumbered(one) == _renumbered(other) for one, other in zip(ours, theirs, strict=True)
    )


def _renumbered(step: Step) -> list[list[int]]:
    """Number a step's blocks by their first appearance in it."""
    numbers: dict[int, int] = {}
    return [
        [numbers.setdefault(block, len(numbers)) for block in step.tables[row.request]]
        for row in step.rows
    ]


class Comparison(NamedTuple):
    """How one workload compares.

    kind  the first decision that differs; "" if nothing does. Where all decisions are equal, it names
          the first of these that differs: the counts of free blocks, which requests share blocks, the
          numbers of the blocks.
    """

    workload: Workload
    kind: str


def compare(recording: Recording, config: EngineConfig | None = None) -> Comparison:
    """Replay a recorded workload and compare."""
    return compare_steps(recording, replay(recording.workload, config))


def compare_steps(recording: Recording, ours: list[Step]) -> Comparison:
    """Compare the engine's steps with the recorded ones."""
    workload, theirs = recording
    kind = first_difference(ours, theirs)
    if not kind and any(one.free != other.free for one, other in zip(ours, theirs, strict=True)):
        kind = FREE
    elif not kind and not shares_equally(ours, theirs):
        kind = SHARING
    elif not kind and any(
        one.tables != other.tables for one, other in zip(ours, theirs, strict=True)
    ):
        kind = IDS
    return Comparison(workload, kind)


def table(comparisons: Sequence[Comparison]) -> str:
    """Return as text how many workloads of each stratum are equal, and the kinds of differences."""
    totals = Counter(one.workload.stratum for one in comparisons)
    kinds = Counter(one.kind for one in comparisons if one.kind)
    columns = ("decisions", "free", "sharing", "ids", "of")
    lines = ["".join([f"{'equal in':14}", *(f"{name:>11}" for name in columns)])]
    for stratum, total in totals.items():
        some = Counter(one.kind for one in comparisons if one.workload.stratum == stratum)
        ids = some[""]
        sharing = ids + some[IDS]
        free = sharing + some[SHARING]
        shown = (free + some[FREE], free, sharing, ids, total)
        lines.append(f"{stratum:14}" + "".join(f"{count:11}" for count in shown))
    return "\n".join([*lines, "", *(f"{count:5}  {kind}" for kind, count in kinds.most_common())])


def listing(comparisons: Sequence[Comparison]) -> str:
    """Return as text which workloads differ in what; seeded workloads by their seed."""
    lines = []
    for kind in sorted({one.kind for one in comparisons if one.kind}):
        lines.append(f"{kind}: {CAUSES.get(kind, 'cause unknown')}")
        names: dict[str, list[str]] = {}
        for one in comparisons:
            if one.kind == kind:
                stratum = one.workload.stratum
                short = one.workload.name.removeprefix(stratum + " ")
                names.setdefault(stratum, []).append(short)
        for stratum, some in names.items():
            mark = " " if some[0].isdecimal() else "; "
            lines.append(f"    {stratum}: {mark.join(some)}")
    return "\n".join(lines)


def main() -> None:
    """Compare a recording, and print the table."""
    parser = argparse.ArgumentParser(description="Compare the engine with a recording of vLLM.")
    parser.add_argument("file", type=Path, nargs="?", default=DECISIONS_OF_VLLM)
    options = parser.parse_args()
    started = time.perf_counter()
    print(table([compare(recording) for recording in read(options.file)]))
    print(f"{time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
