"""Which product is chosen: from times that were measured once, or as the environment says."""

import json

import pytest
import torch

from engine import Engine, EngineConfig, SamplingParams
from engine.core.config import ConfigError
from engine.models import kernels, products
from engine.models.kernels import ENVIRONMENT_VARIABLE, TOKENS, choose
from engine.models.products import PRODUCTS
from tests.engine.workloads import finish

SMALL = torch.zeros(256, 256)
ABSENT = [("float32", "tiles"), ("bfloat16", "tiles"), ("bfloat16", "weights-first")]
FORMS = {"packed": products._CAN_PACK, "half": products.HAS_FBGEMM}
ABSENT += [
    (dtype, form) for form, has in FORMS.items() if not has for dtype in ("float32", "bfloat16")
]
LARGE = torch.zeros(1024, 1024)


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """An empty cache folder, and products that are measured."""
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "measured")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(kernels, "_table", kernels._Table())
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 9.0, 9.0))
    return tmp_path / "underglass" / "kernels.json"


def measured(monkeypatch, **times):
    """Let every matrix take these times: one number, or one for each of TOKENS."""
    lists = {
        name.replace("_", "-"): each if isinstance(each, list) else [float(each)] * len(TOKENS)
        for name, each in times.items()
    }
    monkeypatch.setattr(kernels, "measure", lambda shape, dtype: lists)


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tokens_do_not_depend_on_the_product(name, dtype, monkeypatch):
    def generated(fixed):
        monkeypatch.setenv(ENVIRONMENT_VARIABLE, fixed)
        config = EngineConfig(token_budget=24, max_batch_size=3, max_kv_tokens=512)
        engine = Engine.load("bundled", config, dtype=dtype)
        used = set(engine.runner.describe()["kernels"].values())
        assert used == {fixed} or (used == {"linear"} and (dtype, fixed) in ABSENT)
        params = SamplingParams(max_tokens=12, temperature=0)
        prompts = ["Once upon a time", "What is 12 + 7?", "A fox", "There was a cat" * 9]
        requests = [engine.submit(prompt, params) for prompt in prompts]
        finish(engine)
        return [request.output_ids for request in requests]

    assert generated(name) == generated("linear")


def test_times_are_measured_once_and_kept(cache, monkeypatch):
    measured(monkeypatch, linear=5, weights_first=[4.0] * 3 + [6.0] * 6, packed=9)
    assert choose(SMALL, None).names == ("weights-first",) * 3 + ("linear",) * 6
    [table] = json.loads(cache.read_text()).values()
    assert set(table) == {"float32 256x256"}
    measured(monkeypatch, linear=1)
    assert choose(SMALL, None).names[0] == "weights-first"
    monkeypatch.setattr(kernels, "_table", kernels._Table())  # as in the next process
    assert choose(SMALL, None).names[0] == "weights-first"
    with kernels.noted() as notes:
        choose(SMALL, None)
    assert notes == {"float32 256x256": "weights-first to 4, linear"}


@pytest.mark.parametrize(
    "damage", ["", "{", '{"%s": {"float32 256x256": {"linear": [1.0]}}}', "[]"]
)
def test_a_damaged_file_is_measured_and_written_again(damage, cache, monkeypatch):
    cache.parent.mkdir()
    cache.write_text(damage.replace("%s", kernels._machine()))
    measured(monkeypatch, linear=5, packed=1)
    assert choose(SMALL, None).names == ("packed",) * len(TOKENS)
    assert "packed" in cache.read_text()


def test_times_of_a_busy_machine_are_not_kept(cache, monkeypatch):
    monkeypatch.setattr("os.getloadavg", lambda: (99.0, 0.0, 0.0))
    measured(monkeypatch, linear=5, packed=1)
    assert choose(SMALL, None).names == ("packed",) * len(TOKENS)
    measured(monkeypatch, linear=1)
    assert choose(SMALL, None).names[0] == "packed"  # within the process
    assert not cache.exists()


def test_a_folder_that_cannot_be_written_is_no_error(cache, monkeypatch):
    cache.parent.write_text("a file")
    measured(monkeypatch, linear=5)
    assert choose(SMALL, None).names == ("linear",) * len(TOKENS)


def test_a_large_matrix_is_packed_only_as_a_whole(cache, monkeypatch):
    packed, mixed = ("packed",) * len(TOKENS), ("linear",) + ("packed",) * (len(TOKENS) - 1)
    measured(monkeypatch, linear=10, packed=[10.9] + [5.0] * 8)
    assert choose(LARGE, None).names == packed
    assert choose(LARGE, None, may_replace=False).names == ("linear",) * len(TOKENS)
    assert choose(SMALL, None).names == mixed
    assert choose(SMALL, None, few_tokens=True).names == packed
    monkeypatch.setattr(kernels, "_table", kernels._Table())
    cache.unlink()
    measured(monkeypatch, linear=10, packed=[10.9] + [5.0] * 8, half=[1.0] * 5 + [9.0] * 4)
    assert choose(LARGE, None).names == ("half",) * len(TOKENS)
    assert choose(LARGE + 1 / 3, None).names == packed  # float16 cannot hold it
    monkeypatch.setattr(kernels, "_table", kernels._Table())
    cache.unlink()
    measured(monkeypatch, linear=10, packed=[11.1] + [5.0] * 8)
    assert choose(LARGE, None).names == ("linear",) * len(TOKENS)


def test_what_this_machine_measures_is_finite_and_complete(cache):
    times = kernels.measure(torch.Size([64, 96]), torch.float32)
    assert {"linear", "weights-first"} <= times.keys() <= PRODUCTS.keys()
    assert all(len(each) == len(TOKENS) and max(each) < 1e6 for each in times.values())


def test_an_unknown_product_is_rejected_with_its_name(monkeypatch):
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "fastest")
    with pytest.raises(ConfigError, match=r"UNDERGLASS_KERNELS must be .*half, got 'fastest'"):
        choose(SMALL, None)
