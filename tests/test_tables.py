"""The tables that are written from declarations: settings, metrics, fields, models, events.

To renew them: `make tables`, or `pytest tests/test_tables.py --update-snapshots`.
"""

import pytest

from authoring.generated.files import FILES, ROOT
from engine.core.cache.eviction import EVICTIONS
from engine.core.config import EngineConfig
from engine.core.declared import settings_of
from engine.core.scheduling.policies import POLICIES


@pytest.mark.parametrize("name", FILES)
def test_a_table_says_what_the_declarations_say(name: str, request: pytest.FixtureRequest) -> None:
    text = (ROOT / name).read_text("utf-8")
    expected = FILES[name](text)
    if request.config.getoption("--update-snapshots"):
        (ROOT / name).write_text(expected, "utf-8")
    assert text == expected, "make tables"


def test_the_names_of_policies_and_eviction_orders_are_declared() -> None:
    choices = {one.name: one.choices for one in settings_of(EngineConfig)}
    assert set(choices["policy"]) == set(POLICIES)
    assert set(choices["eviction"]) == set(EVICTIONS)
