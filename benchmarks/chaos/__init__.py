"""Chaos: faults at random times under open-loop traffic, and what must be true afterwards.

    python -m benchmarks chaos --runs 10 --seconds 40     # or: make chaos ARGS="--runs 10"

Three servers run behind links that can be held, cut and slowed, and a gateway over their addresses. In
each run, requests of all kinds arrive at random times, and faults strike processes and connections.
Workload, faults and times follow from the run's seed, which is printed. Afterwards `checks.py` compares
what each client saw with the answers of a server without faults, folds the cluster log, and asks the
servers what they still hold. In runs with an odd seed, prefill and decode replicas are apart.

    traffic.py   the requests, and what their clients saw
    network.py   the links between gateway and replicas
    cluster.py   the processes
    faults.py    the faults
    checks.py    what must be true
    runs.py      a run, and its report

Source: Jepsen's tests have the same parts: a generator, clients, a nemesis and a checker.
"""

import asyncio
import random
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from tqdm import tqdm

from benchmarks.chaos.cluster import Listed
from benchmarks.chaos.faults import KINDS
from benchmarks.chaos.runs import Row, plan, run
from benchmarks.chaos.traffic import expected, questions
from benchmarks.harness import save


def main(  # noqa: PLR0917
    runs: Annotated[int, typer.Option(help="how many runs")] = 10,
    seconds: Annotated[float, typer.Option(help="how long requests arrive in a run")] = 40.0,
    seed: Annotated[int, typer.Option(help="of the first run; the others count on")] = 0,
    rate: Annotated[float, typer.Option(help="requests per second, beside bursts")] = 2.0,
    faults: Annotated[int, typer.Option(help="faults per run")] = 6,
    only: Annotated[list[str] | None, typer.Option(help=f"of {', '.join(KINDS)}")] = None,
    tokens: Annotated[int, typer.Option(help="tokens of the longest answers")] = 300,
) -> None:
    """Run faults under traffic; the exit status is 1 if a promise was broken."""
    if unknown := set(only or ()) - KINDS.keys():
        raise typer.BadParameter(f"unknown: {', '.join(unknown)}; there are {', '.join(KINDS)}")
    directory = Path(tempfile.mkdtemp(prefix="underglass-chaos-"))
    rows = asyncio.run(
        _all(directory, runs, seconds, seed, rate, faults, only or list(KINDS), tokens)
    )
    save("chaos", {"runs": [asdict(row) for row in rows]})
    if broken := sum(row.violations for row in rows):
        print(f"{broken} violations; the logs are in {directory}")
        sys.exit(1)


async def _all(  # noqa: PLR0917
    directory: Path,
    runs: int,
    seconds: float,
    seed: int,
    rate: float,
    faults: int,
    names: list[str],
    tokens: int,
) -> list[Row]:
    cluster, rows = Listed(directory), list[Row]()
    pool = questions(48, random.Random(seed), tokens)
    try:
        await cluster.start()
        server = cluster.replicas[0].server
        assert server is not None
        answers = await expected(server.url, pool)
        for number in tqdm(range(seed, seed + runs), desc="chaos", disable=None):
            what = plan(number, seconds, rate, faults, names, len(pool))
            row, _ = await run(cluster, what, pool, answers, directory / f"run-{number}")
            rows.append(row)
            print("  ".join(f"{name} {value}" for name, value in asdict(row).items()), flush=True)
    finally:
        await cluster.stop()
    return rows
