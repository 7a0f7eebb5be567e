"""The sizes in docs/models.md: the parameters are those of transformers."""

import json

import pytest

from engine.models.kv_sizes import kv_sizes
from tests.engine.compute.models import save


@pytest.mark.parametrize("name", ["qwen3", "qwen3-untied"])
def test_the_parameters_are_those_of_transformers(tmp_path, name):
    model = save(tmp_path, name)
    entries = json.loads((tmp_path / "config.json").read_text())
    matrices = sum(one.numel() for one in model.parameters() if one.dim() > 1)  # no norms
    assert kv_sizes(entries).parameters == matrices
