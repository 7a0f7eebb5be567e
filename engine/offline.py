"""Whole runs without a server: what a notebook or a script calls.

Everything here is `submit` and `step` in a loop; nothing here schedules.

- `complete`        many prompts to their ends, with a progress bar
- `score`           how probable the model finds given texts
- `generate`        nanochat's contract: samples of one prompt, column by column
- `generate_batch`  the same, as whole rows

vLLM's counterpart is `LLM` (`vllm/entrypoints/llm.py`); nanochat's is `Engine` (`nanochat/engine.py`).
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.config import EngineConfig
from engine.output.processor import best
from engine.runner import Runner
from engine.scheduling.admission import RequestError, ids_of
from engine.scheduling.request import Request, TokenScore
from engine.scheduling.sampling_params import SamplingParams
from engine.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from engine.engine import StepOutput


@dataclass(slots=True)
class Completion:
    """One finished sample; see `Request` for the fields."""

    request_id: int
    text: str
    token_ids: list[int]
    finish_reason: str
    error: str
    logprobs: list[float]
    top_logprobs: list[list[tuple[int, float]]]
    prompt_scores: list[TokenScore]


class Offline(ABC):
    """The part of `Engine` that runs whole workloads."""

    config: EngineConfig
    runner: Runner
    tokenizer: Tokenizer
    requests: dict[int, Request]
    paused: bool

    @abstractmethod
    def submit(self, prompt: str | Sequence[int], params: SamplingParams | None = None) -> Request:
        """See `Engine.submit`."""

    @abstractmethod
    def step(self) -> "StepOutput":
        """See `Engine.step`."""

    @abstractmethod
    def abort(self, request: Request | int) -> bool:
        """See `Engine.abort`."""

    @abstractmethod
    def has_work(self) -> bool:
        """See `Engine.has_work`."""

    def complete(
        self,
        prompts: Sequence[str | Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        progress: bool = True,
    ) -> list[Completion]:
        """Serve many prompts to the end and return their samples, prompt by prompt.

        Samples come in their order; with `best_of` the n best, best first. `params` are one for all or
        one for each. `progress` shows a bar over finished samples.

        Raises RequestError for what could never be served.
        """
        if isinstance(prompts, str):
            raise RequestError(
                "prompts", "must be a list of prompts; for a single one write [prompt]"
            )
        each = list(params) if isinstance(params, Sequence) else [params] * len(prompts)
        if len(each) != len(prompts):
            raise ValueError(f"params: {len(each)} for {len(prompts)} prompts; give one for each")
        self._check_running()
        firsts = [self.submit(prompt, one) for prompt, one in zip(prompts, each, strict=True)]
        samples = [range(first.id, first.id + first.params.samples) for first in firsts]
        total = sum(map(len, samples))
        done: dict[int, Request] = {}
        tqdm = importlib.import_module("tqdm.auto").tqdm
        with tqdm(total=total, unit="sample", disable=not progress) as bar:
            while len(done) < total and self.has_work():
                for request in self.step().finished:
                    # One that fails before it forks stands for all its samples.
                    ids = range(request.id, request.id + request.num_seqs)
                    done |= dict.fromkeys(ids, request)
                bar.update(len(done) - bar.n)
        return [_completion(one) for ids in samples for one in best([done[id_] for id_ in ids])]

    def score(
        self,
        pairs: Sequence[tuple[str | Sequence[int], str | Sequence[int]]],
        *,
        progress: bool = True,
    ) -> list[list[float]]:
        """How probable the model finds given texts: (prompt, continuation) pairs.

        Returns, for each pair, the natural logarithm of the probability of each token of the
        continuation. Text is tokenized prompt and continuation apart, as lm-eval does it. Raises
        RequestError for a pair that does not fit, RuntimeError if the forward pass fails.
        """
        texts, lengths = list[list[int]](), list[int]()
        for prompt, continuation in pairs:
            ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else ids_of(prompt)
            more = (
                self.tokenizer.encode_ordinary(continuation)
                if isinstance(continuation, str)
                else ids_of(continuation)
            )
            if not ids or not more:
                raise RequestError("prompt", "prompt and continuation both need a token at least")
            texts.append(ids + more)
            lengths.append(len(more))
        # The one token that is sampled after the text costs nothing: it is never computed.
        params = SamplingParams(max_tokens=1, prompt_logprobs=0)
        scored = self.complete(texts, params, progress=progress)
        for one in scored:
            if one.error:
                raise RuntimeError(f"scoring failed: {one.error}")
        return [
            [score.logprob for score in one.prompt_scores[-length:]]
            for one, length in zip(scored, lengths, strict=True)
        ]

    def generate(  # noqa: PLR0917 - nanochat's own signature
        self,
        tokens: Sequence[int],
        num_samples: int = 1,
        max_tokens: int | None = None,
        temperature: float = 1.0,
        top_k: int | None = None,
        seed: int = 42,
    ) -> Iterator[tuple[list[int], list[int]]]:
        """Samples of one prompt, computed once; yields (token_column, token_masks).

        A column has the next token of each sample; its mask is 1 if the token was sampled and 0 if a
        tool forced it. A row ends with <|assistant_end|>, <|bos|> or the model's own end token, which
        is in its column; from then on the row repeats it with mask 0, until all rows have ended.
        `max_tokens` None: as many as memory and the model's context allow.

        Steps run while the generator is asked, and serve other requests as well. Whoever stops asking
        and closes it ends the samples. Raises RequestError, at the first column, for a prompt that
        does not fit, and RuntimeError if the forward pass fails.
        """
        if max_tokens == 0:
            return
        self._check_running()
        params = SamplingParams(
            n=num_samples,
            max_tokens=self._longest(len(tokens)) if max_tokens is None else max_tokens,
            temperature=temperature,
            top_k=0 if top_k is None else top_k,
            seed=seed,
            stop_token_ids=tuple(sorted(self._terminal_ids())),
        )
        first = self.submit(tokens, params).id
        try:
            yield from self._columns(first, num_samples)
        finally:
            for request_id in range(first, first + num_samples):
                self.abort(request_id)

    def _columns(self, first: int, num_samples: int) -> Iterator[tuple[list[int], list[int]]]:
        rows = [list[int]() for _ in range(num_samples)]
        masks = [list[int]() for _ in range(num_samples)]
        at = 0
        while True:
            while any(
                at == len(row) and self._may_go_on(first, sample) for sample, row in enumerate(rows)
            ):
                output = self.step()
                for gained in output.tokens:
                    if gained.request.root == first:
                        sampled = len(gained.ids) - gained.forced
                        rows[gained.request.sample] += gained.ids
                        masks[gained.request.sample] += [1] * sampled + [0] * gained.forced
                for request in output.finished:
                    if request.root == first and request.error:
                        raise RuntimeError(f"generation failed: {request.error}")
            if all(at >= len(row) for row in rows):
                return
            yield (
                [row[min(at, len(row) - 1)] for row in rows],
                [mask[at] if at < len(mask) else 0 for mask in masks],
            )
            at += 1

    def _may_go_on(self, first: int, sample: int) -> bool:
        parent = self.requests.get(first)
        unforked = parent is not None and parent.num_seqs > 1
        return unforked or first + sample in self.requests

    def generate_batch(  # noqa: PLR0917
        self,
        tokens: Sequence[int],
        num_samples: int = 1,
        max_tokens: int | None = None,
        temperature: float = 1.0,
        top_k: int | None = None,
        seed: int = 42,
    ) -> tuple[list[list[int]], list[list[int]]]:
        """The rows of `generate` and their masks: prompt included (mask 0), terminal tokens not."""
        terminal = self._terminal_ids()
        rows = [list(tokens) for _ in range(num_samples)]
        masks = [[0] * len(tokens) for _ in range(num_samples)]
        ended = [False] * num_samples
        for column in self.generate(tokens, num_samples, max_tokens, temperature, top_k, seed):
            for index, (token, mask) in enumerate(zip(*column, strict=True)):
                ended[index] = ended[index] or token in terminal
                if not ended[index]:
                    rows[index].append(token)
                    masks[index].append(mask)
        return rows, masks

    def _terminal_ids(self) -> frozenset[int]:
        ids = {self.tokenizer.token_id("<|assistant_end|>"), self.tokenizer.bos_id}
        return self.tokenizer.eos_ids | {id_ for id_ in ids if id_ is not None}

    def _longest(self, prompt: int) -> int:
        """Output tokens that fit after a prompt; 1 at least, so that the check says what is wrong."""
        # The last token is never computed, so it takes no slot.
        room = self.config.num_blocks * self.config.block_size + 1 - prompt
        if self.runner.max_context is not None:
            room = min(room, self.runner.max_context - prompt)
        return max(1, room)

    def _check_running(self) -> None:
        if self.paused:
            raise RuntimeError("the engine is paused: call resume() first, or step() by hand")


def _completion(request: Request) -> Completion:
    return Completion(
        request_id=request.id,
        text=request.output_text,
        token_ids=request.output_ids,
        finish_reason=request.finish_reason or "",
        error=request.error,
        logprobs=request.logprobs,
        top_logprobs=request.top_logprobs,
        prompt_scores=request.prompt_scores,
    )
