"""docs/models.md says what the code supports, and its sizes are those the memory check computes."""

import json

import pytest

from engine.models.kv_sizes import kv_sizes
from tests.engine.compute.models import save
from tests.engine.compute.models_page import BEGIN, END, PAGE, render


def test_the_tables_are_up_to_date():
    """If not: python -m tests.engine.compute.models_page."""
    written = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert written == render()


@pytest.mark.parametrize("name", ["qwen3", "qwen3-untied"])
def test_the_parameters_are_those_of_transformers(tmp_path, name):
    model = save(tmp_path, name)
    entries = json.loads((tmp_path / "config.json").read_text())
    matrices = sum(one.numel() for one in model.parameters() if one.dim() > 1)  # no norms
    assert kv_sizes(entries).parameters == matrices
