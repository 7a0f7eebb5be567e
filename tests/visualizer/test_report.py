"""`underglass report`: its numbers are those of the log, and nothing of a log becomes markup."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from statistics import median

import pytest

from engine import Cost, EngineConfig, EventLog, SamplingParams, Workload, simulate
from engine.core.log import vocabulary as v
from engine.simulation.workload import Arrival
from tests.engine.workloads import random_log
from visualizer import read
from visualizer.reading.waterfall.words import headline
from visualizer.report import report
from visualizer.report.blocks import Heading, Picture, Table, Text, as_html, write_markdown
from visualizer.scenario import find_scenario
from visualizer.sources import read_source

FAULTS = Path(__file__).parents[1] / "fixtures" / "cluster_faults"
HOSTILE = "<b>Ada</b> | `x`\n[y](z)"


def crowd(seats: int) -> EventLog:
    """Nine requests in two seconds, and then 31, which wait for seats."""
    params = SamplingParams(max_tokens=20, ignore_eos=True)
    arrivals = [
        Arrival(at_ms=at, prompt=[97 + at % 9] * 20, params=params, label=HOSTILE)
        for at in (min(250 * n, 2000 + 50 * n) for n in range(40))
    ]
    return simulate(Workload([*arrivals]), EngineConfig(max_batch_size=seats), cost=Cost(9, 0.1))


def test_it_says_what_the_log_says():
    log = crowd(2)
    blocks = list(report(log, "run"))
    texts = [one.text for one in blocks if isinstance(one, Text)]
    assert read(log).regimes.sentence == texts[0]
    slowest = sorted(read(log).waterfall, key=lambda one: -one.total)[:10]
    told = [one.strip() for one in texts if " took " in one]
    assert told == [headline(one) for one in slowest]
    tables = [one.rows for one in blocks if isinstance(one, Table)]
    assert "--max-num-seqs" in tables[-1][1][1] and "%" in tables[-1][1][2]
    assert sum(int(row[1]) for row in tables[1][1:]) == 40  # before, meanwhile and after
    timeline = next(one.svg for one in blocks if isinstance(one, Picture))
    points = timeline.split('class="seats" d="M')[1].split("Z")[0].split("L")
    heights = [float(one.split()[1]) for one in points[: len(points) // 2]]
    assert median(heights) == min(heights) < max(heights), "both seats are taken most of the time"


@pytest.mark.parametrize("kind", ["html", "markdown"])
def test_nothing_of_a_log_becomes_markup(kind, tmp_path):
    blocks = list(report(crowd(1), HOSTILE, replays=False))
    text, told = as_html(blocks), "&lt;b&gt;Ada"
    if kind == "markdown":
        text = write_markdown(blocks, tmp_path / "run.md")[0].read_text()
        told = r"\<b\>Ada\</b\> \| \`x\` \[y\](z)"
    assert told in text and "<b>" not in text


def test_any_log_has_a_report(first_seed, tmp_path):
    logs = [random_log(seed) for seed in range(first_seed, first_seed + 5)]
    logs += [EventLog.from_bytes(b"\n".join([*logs[0].deterministic(), b""]))]
    logs += [find_scenario(name).log for name in ("vllm_tight", "speculation", "experts")]
    for log in [*logs, *map(read_source, FAULTS.glob("*.gz"))]:
        blocks = list(report(log, "run", replays=False))
        for path in write_markdown(blocks, tmp_path / "run.md")[1:]:
            ElementTree.parse(path)
        assert isinstance(blocks[0], Heading) and as_html(blocks)
        drawn = [one.svg for one in blocks if isinstance(one, Picture) and one.name == "timeline"]
        if isinstance(log, EventLog) and drawn:
            assert ('class="moment"' in drawn[0]) == any(log.of(v.Preempted)), "it has finished"
