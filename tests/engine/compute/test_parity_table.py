"""Every family in every situation says what transformers says; see `parity.py`.

Rows that differ in how attention, layers or weights are computed have the whole table. The others have
the situations together in one run; `make soak` runs the rest of the table. Recorded expert loads are
those of transformers' router in the same situations.
"""

import functools

import pytest
import torch

from engine.core.log import vocabulary as v
from engine.core.log.expert_loads import unpacked
from tests.engine.compute.parity import COLUMNS, ROWS, TOGETHER, fill, make_prompts, served
from visualizer import read

PROMPTS, OUTPUT = 6, 12
# One of each: layer norm, grouped heads, windows, two rotations, experts, half precision, int8, sinks.
WHOLE = {"gpt2", "qwen3", "mistral", "gemma3", "gemma4", "qwen3-moe", "phi4-long, fp16"}
WHOLE |= {"gguf qwen3, Q4_K_M", "gpt-oss"}
CELLS = [
    pytest.param(
        row, column, marks=[] if row in WHOLE or column == "together" else pytest.mark.soak
    )
    for row in ROWS
    for column in (*COLUMNS, "together")
]


@pytest.mark.parametrize(("row", "column"), CELLS)
def test_greedy_tokens_are_those_of_transformers(subject, row, column):
    situation = COLUMNS.get(column, TOGETHER)
    cell = fill(subject(row), situation, PROMPTS, OUTPUT)
    print(f"\n{row}, {column}: {cell}")
    assert cell.happened >= 3, f"too few {situation.says}"
    assert cell.tokens == PROMPTS * OUTPUT
    assert len(cell.said) >= 5, "a model that says one thing tests nothing"
    assert cell.wrong == 0
    assert cell.unlike <= 1, "the log-probabilities are others"


# the layers with experts
MODELS = {"qwen3-moe": (0, 1, 2), "qwen3-moe, dense layer": (0, 2), "gpt-oss": (0, 1, 2)}
MODELS |= {"gemma4-moe": tuple(range(5))}


class Router:
    """What transformers' router chooses, as loads of each layer."""

    def __init__(self, judge, layers):
        self.judge, self.layers = judge, layers
        self._chosen = functools.cache(self._choose)

    @torch.inference_mode()
    def _choose(self, tokens):
        """The experts of each token of each layer: [layers, tokens, k]."""
        output = self.judge(torch.tensor([tokens]), output_router_logits=True)
        logits = torch.stack(output.router_logits)
        return logits.topk(2).indices  # Gemma 4's are probabilities

    def loads(self, tokens, start, count):
        """How many of `tokens[start:][:count]` each expert computes, by layer."""
        experts = [torch.zeros(0, dtype=torch.long)] * self.judge.config.num_hidden_layers
        chosen = self._chosen(tuple(tokens))[:, start : start + count]
        for layer, of_layer in zip(self.layers, chosen, strict=True):
            size = self.judge.config.num_experts
            experts[layer] = torch.bincount(of_layer.flatten(), minlength=size)
        return experts


@pytest.mark.parametrize(
    ("name", "column"),
    [*(("qwen3-moe", column) for column in COLUMNS), *((name, "together") for name in MODELS)],
)
def test_recorded_loads_are_those_of_transformers_router(subject, name, column):
    subject = subject(name)
    router = Router(subject.judge, MODELS[name])
    texts = make_prompts(PROMPTS, 97)
    situation = COLUMNS.get(column, TOGETHER)
    requests, log = served(subject, situation, texts, OUTPUT)
    assert situation.happened(log) >= 3
    tokens = {request.id: request.tokens for request in requests}
    steps = zip(log.of(v.StepScheduled), log.of(v.StepFinished), strict=True)
    for scheduled, finished in steps:
        layers = range(subject.judge.config.num_hidden_layers)
        expected = [torch.zeros(8 if i in MODELS[name] else 0, dtype=torch.long) for i in layers]
        for row in scheduled.rows:
            known = row.start + row.count - len(row.drafts)
            # Later tokens change nothing, so all rows of a request without drafts share a call.
            whole = tokens[row.request] if not row.drafts else tokens[row.request][:known]
            loads = router.loads([*whole, *row.drafts], row.start, row.count)
            expected = [a + b for a, b in zip(expected, loads, strict=True)]
        recorded = [unpacked(layer) for layer in finished.expert_loads]
        assert recorded == [layer.tolist() for layer in expected], finished.step
        assert read(log).expert_loads(finished.step).layers == recorded
        computed = sum(row.count for row in scheduled.rows)
        assert {sum(recorded[layer]) for layer in MODELS[name]} == {2 * computed}
