"""Lesson 21's exercise: right parts are accepted, and divide the real model."""

import numpy as np
import pytest

from checks import check
from engine import Engine, SamplingParams
from engine.models.config_file import read_config
from engine.models.loader import BUNDLED
from engine.parallel import Parallel
from engine.parallel.shards import Shard, own_cuts
from solutions.lesson_21 import cut as solution

OWN = None


def size(case):
    return (case.units % case.parts > 0, case.units, case.parts)


def with_numpy(name, rows, columns, unit, part, parts):
    is_second = name in {"o", "down"}
    along = columns if is_second else rows
    own = np.concatenate(
        [*np.array_split(np.arange(along).reshape(-1, unit), parts)[part], np.arange(0)]
    ).astype(int)
    return (np.arange(rows), own) if is_second else (own, np.arange(columns))


def the_first_get_the_rest(name, rows, columns, unit, part, parts):
    along = columns if name in ("o", "down") else rows
    least, more = divmod(along // unit, parts)
    start = part * least + min(part, more)
    own = [*range(start * unit, (start + least + (part < more)) * unit)]
    return [[*range(rows)], own] if name in ("o", "down") else [own, [*range(columns)]]


def by_another_way(name, rows, columns, unit, part, parts):
    if name in ("o", "down"):
        first, second = by_another_way("up", columns, rows, unit, part, parts)
        return second, first
    edges = [round(rows / unit * edge / parts) * unit for edge in (part, part + 1)]
    return range(*edges), range(columns)


def the_last_units_first(name, rows, columns, unit, part, parts):
    return solution(name, rows, columns, unit, parts - 1 - part, parts)


RIGHT = [solution, with_numpy, the_first_get_the_rest, by_another_way, the_last_units_first]


@pytest.mark.parametrize("part", RIGHT, ids=lambda part: part.__name__)
def test_a_right_part_is_accepted_and_covers_each_weight_of_the_bundled_model(part) -> None:
    rule = check.lesson_21(part)
    assert rule is not None
    config = read_config(BUNDLED)
    cuts = own_cuts(Parallel(tensor=2, cut=rule), config)
    for name, own in cuts[0].items():
        other = cuts[1][name]
        assert sum(len(rows) * len(columns) for rows, columns in (own, other)) > 0
        assert own != other
    local = Shard(Parallel(tensor=2), config, 0).local
    assert len(cuts[0]["gate_proj"][0]) == local.intermediate_size


def test_a_right_part_divides_the_real_model() -> None:
    params = SamplingParams(max_tokens=12, temperature=0)
    rule = check.lesson_21(the_last_units_first)
    engine = Engine.load("bundled", parallel=Parallel(tensor=2, cut=rule))
    told = [
        one.complete(["Once upon a time"], params, progress=False)[0].token_ids
        for one in (engine, Engine.load("bundled"))
    ]
    engine.runner.close()
    assert told[0] == told[1]
