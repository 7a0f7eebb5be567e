"""docs/models.md says what the code supports, and its sizes are those the memory check computes."""

import pytest

from engine.models.config_file import read_config
from tests.engine.compute.models import save
from tests.engine.compute.models_page import BEGIN, END, PAGE, num_parameters, render


def test_the_tables_are_up_to_date():
    """If not: python -m tests.engine.compute.models_page."""
    written = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert written == render()


@pytest.mark.parametrize("name", ["qwen3", "qwen3-untied"])
def test_the_parameters_are_those_of_transformers(tmp_path, name):
    model = save(tmp_path, name)
    assert num_parameters(read_config(tmp_path)) == model.num_parameters()
