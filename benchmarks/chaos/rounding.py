"""How near an answer was to another one where they part: a difference within rounding is no error.

The logits change in their last bits with the shape of the batch (`uniform` of `engine/core/runner.py`).
So a greedy token may differ where two tokens are almost equally likely, and a drawn one where its
random number lies on the border between two tokens. `margin` says how near: the difference of the two
logits, or the distance of the number from the border.
"""

import math
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

import msgspec

from engine import Engine, EngineConfig, EventLog, SamplingParams
from engine.core.log import vocabulary as v
from engine.core.output.processor import TokenOutput
from engine.core.runner import uniform

ROUNDING = 1e-4  # a margin below it; in float32, logits differ by about 1e-5


@dataclass(slots=True)
class Known:
    """A request of a server without faults: the prompt, and of each sample its tokens and pieces."""

    prompt: list[int]
    sampling: dict[str, Any]
    samples: list[tuple[list[int], list[str]]] = field(default_factory=list)


def known(log: EventLog) -> dict[str, Known]:
    """Return the requests of a log by their labels."""
    found, outputs = dict[str, Known](), dict[int, tuple[list[int], list[str]]]()
    labels = dict[int, str]()
    for event in log:
        match event:
            case v.RequestArrived():
                labels[event.request] = event.label
                found[event.label] = Known(event.prompt, event.sampling)
                outputs[event.request] = [], []
                found[event.label].samples.append(outputs[event.request])
            case v.Forked():
                outputs[event.request] = [], []
                found[labels[event.parent]].samples.append(outputs[event.request])
            case v.StepFinished():
                for row in event.tokens:
                    outputs[row.request][0].extend(row.ids)
                    outputs[row.request][1].extend(row.texts)
    return found


class Judge:
    """Computes margins with an engine of its own."""

    @cached_property
    def _engine(self) -> Engine:
        return Engine.load("bundled", EngineConfig(max_kv_tokens=4096, prefix_cache="off"))

    def of_texts(self, request: Known, texts: Sequence[str]) -> float:
        """Return the largest margin at the first tokens whose pieces the samples' `texts` lack."""
        margins = [0.0]
        for sample, ((ids, pieces), text) in enumerate(zip(request.samples, texts, strict=False)):
            ends = list(accumulate(pieces))
            at = next((k for k, end in enumerate(ends) if not text.startswith(end)), len(ids) - 1)
            if text != ends[-1]:
                margins.append(self.margin(request.prompt, ids[: at + 1], request.sampling, sample))
        return max(margins)

    def margin(
        self, prompt: Sequence[int], output: Sequence[int], sampling: dict[str, Any], sample: int
    ) -> float:
        """Return how near the last token of `output` was to another one; infinity if unknown."""
        given = msgspec.convert(sampling, SamplingParams)
        if given.structured is not None:
            return math.inf  # a grammar changes the probabilities
        before = [*prompt, *output[:-1]]
        vocabulary = self._engine.tokenizer.vocab_size
        params = SamplingParams(max_tokens=1, ignore_eos=True, logprobs=vocabulary)
        self._engine.submit(before, params)
        tokens = list[TokenOutput]()
        while not tokens:
            tokens = self._engine.step().tokens
        scores = dict(tokens[0].top[0])
        if not given.temperature:
            first, second = sorted(scores.values())[-2:][::-1]
            return first - second
        weights = [math.exp(scores[id_] / given.temperature) for id_ in range(vocabulary)]
        borders = [one / math.fsum(weights) for one in accumulate(weights)]
        number = uniform(given.seed or 0, sample, len(before))
        token = bisect(borders, number)
        assert token == output[-1] or min(abs(one - number) for one in borders) < ROUNDING
        return min(abs(one - number) for one in borders[max(0, token - 1) : token + 1])
