"""Lesson 22's exercise: right counts are accepted and size an engine's memory."""

import numpy as np
import pytest

from checks import check, lesson_22
from checks.lesson_22 import truth, written_out
from engine import Cost, EngineConfig, simulate
from engine.models.configurations import CONFIGURATIONS
from engine.models.kv_sizes import kv_sizes
from engine.simulation.speakers import Speaker, workload_of
from solutions.lesson_22 import kv_bytes as solution
from visualizer import read

OWN = lesson_22.truth


def size(case):
    return case.right


def in_numpy(config, tokens, bytes_per_value):
    return np.int64(solution(config, tokens, bytes_per_value))


def in_floats(config, tokens, bytes_per_value):
    return solution(config, tokens, 1) * float(bytes_per_value)


def layer_by_layer(config, tokens, bytes_per_value):
    total = 0
    for layer in range(config["num_hidden_layers"]):
        kinds = config.get("layer_types")
        kept = tokens
        if kinds and kinds[layer] == "sliding_attention":
            kept = min(kept, config["sliding_window"])
        rank = config.get("kv_lora_rank")
        heads = config.get("num_key_value_heads") or config["num_attention_heads"]
        head_dim = config.get("head_dim")
        if head_dim is None:
            head_dim = config["hidden_size"] / config["num_attention_heads"]
        per_token = rank + config["qk_rope_head_dim"] if rank else heads * head_dim * 2
        total += kept * per_token * bytes_per_value
    return round(total)


def without_null(config, tokens, bytes_per_value):
    entries = {name: value for name, value in config.items() if value is not None}
    entries.setdefault("layer_types", ["full_attention"] * entries["num_hidden_layers"])
    return solution(entries, tokens, bytes_per_value)


@pytest.mark.parametrize("right", [solution, in_numpy, in_floats, layer_by_layer, without_null])
def test_every_right_count_is_accepted_and_sizes_an_engine(right) -> None:
    assert check.lesson_22(right) is right
    memory = int((72e9 - kv_sizes(CONFIGURATIONS["Llama 3.1 8B"].entries).weights) / 64)
    slots = int(memory // right(written_out("Llama 3.1 8B"), 1, 2))
    people = workload_of(Speaker(f"{n}", own=120, output=8) for n in range(60))
    config = EngineConfig(
        max_kv_tokens=slots, max_batch_size=128, token_budget=16384, prefix_cache=False
    )
    log = simulate(people, config, cost=Cost(10, 0.01))
    assert max(step.batch for step in read(log).step_rows) == 52


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_lessons_own_count_is_that_of_the_engine(name: str) -> None:
    for tokens in (1, 500, 100_000):
        expected = kv_sizes(CONFIGURATIONS[name].entries).per_sequence(tokens)
        assert (
            truth(written_out(name), tokens, 2)
            == solution(written_out(name), tokens, 2)
            == expected
        )
