"""The tables of the docs that are written from declarations: settings, metrics, lessons.

To renew them: `pytest tests/test_tables.py --update-snapshots`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.core import CounterMetricFamily

from engine.core.cache.eviction import EVICTIONS
from engine.core.config import EngineConfig
from engine.core.declared import Setting, settings_of
from engine.core.scheduling.policies import POLICIES
from server.api.metrics import METRICS
from server.core.settings import ServerSettings, Start

REPOSITORY = Path(__file__).parents[1]
NONE = "–"  # the other engine has no such flag


def rows_of(setting: Setting, name: str) -> Iterator[tuple[str, str, str]]:
    """A row, or one for each value that has flags of its own."""
    flags = [setting.extra.get(engine, NONE) for engine in ("vllm", "sglang")]
    by_value = [one for one in flags if isinstance(one, dict)]
    if not by_value:
        state = {True: " (on by default)", False: " (off by default)"}.get(setting.default, "")
        yield f"`{name}`{state if setting.kind is bool else ''}", *flags
    for value in dict.fromkeys(value for one in by_value for value in one):
        shown = f'"{value}"' if isinstance(value, str) else value
        of_value = [one.get(value, NONE) if isinstance(one, dict) else one for one in flags]
        yield f"`{name}={shown}`", *of_value


def table_of_flags() -> str:
    rows = [row for one in settings_of(EngineConfig) for row in rows_of(one, one.name)]
    for struct in (ServerSettings, Start):
        for one in settings_of(struct):
            if "vllm" in one.extra:
                rows += rows_of(one, "--" + one.name.replace("_", "-"))
    return table("| here | vLLM | SGLang |", rows)


def table(head: str, rows: list[tuple[str, ...]]) -> str:
    lines = [head, "|---" * len(rows[0]) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "".join(f"{line}\n" for line in lines)


def table_of_metrics() -> str:
    rows = []
    for one in METRICS:
        total = "_total" if one.kind is CounterMetricFamily else ""
        by = f" By {', '.join(f'`{label}`' for label in one.labels)}." if one.labels else ""
        rows.append((f"`{one.name}{total}`", one.help + by))
    return table("| metric | what it is here |", rows)


TABLES = {
    "docs/glossary.md": ("| here | vLLM", table_of_flags),
    "docs/metrics.md": ("| metric | what it is here", table_of_metrics),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_says_what_the_declarations_say(name: str, request: pytest.FixtureRequest) -> None:
    head, render = TABLES[name]
    file = REPOSITORY / name
    text = file.read_text("utf-8")
    before, _, after = text.partition(f"\n{head}")
    rest = after.partition("\n\n")[2]
    expected = f"{before}\n{render()}\n{rest}"
    if request.config.getoption("--update-snapshots"):
        file.write_text(expected, "utf-8")
    assert text == expected, "pytest tests/test_tables.py --update-snapshots writes the table"


def test_the_names_of_policies_and_eviction_orders_are_declared() -> None:
    choices = {one.name: one.choices for one in settings_of(EngineConfig)}
    assert set(choices["policy"]) == set(POLICIES)
    assert set(choices["eviction"]) == set(EVICTIONS)
