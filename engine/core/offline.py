"""Complete runs without a server, for notebooks and scripts. The functions are methods of `Engine`.

Each of them calls `submit` and then `step` in a loop.

- `complete`        serve many prompts to the end, with a progress bar
- `score`           return the log-probabilities of given texts
- `generate`        generate samples of one prompt, column by column, with nanochat's interface
- `generate_batch`  return the same samples as whole rows

vLLM's counterpart is `LLM` (`vllm/entrypoints/llm.py`), and nanochat's is `Engine`
(`nanochat/engine.py`).
"""

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.core.output.processor import best
from engine.core.request import Request, TokenScore
from engine.core.sampling_params import SamplingParams
from engine.core.scheduling.admission import RequestError, max_output, token_ids

if TYPE_CHECKING:
    from engine.core.engine import Engine

_PAUSED = "the engine is paused: call resume() first, or step() by hand"


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


def complete(
    engine: "Engine",
    prompts: Sequence[str | Sequence[int]],
    params: SamplingParams | Sequence[SamplingParams] | None = None,
    *,
    progress: bool = True,
) -> list[Completion]:
    """Serve many prompts to the end and return their samples, prompt by prompt.

    The samples of a prompt are in order; with `best_of`, they are the n best, best first. `params`
    is one SamplingParams for all prompts or a list with one entry per prompt. `progress` shows a bar
    that counts finished samples.

    Raises RequestError for a request that can never be served.
    """
    if isinstance(prompts, str):
        raise RequestError("prompts", f"must be a list of prompts: write [{prompts[:20]!r}]")
    given = params if isinstance(params, Sequence) else [params] * len(prompts)
    if len(given) != len(prompts):
        raise ValueError(
            f"params must have one entry per prompt ({len(prompts)}), got {len(given)}"
        )
    if engine.paused:
        raise RuntimeError(_PAUSED)
    submitted, total = list[tuple[Request, SamplingParams]](), 0
    for prompt, entry in zip(prompts, given, strict=True):
        own_params = entry or SamplingParams()
        submitted.append((engine.submit(prompt, own_params), own_params))
        total += own_params.samples
    done: dict[int, Request] = {}
    counted = 0
    with _progress_bar(total) if progress else nullcontext() as advance:
        while len(done) < total and engine.requests:
            for request in engine.step().finished:
                # A request that fails before it forks stands for all of its samples.
                ids = range(request.id, request.id + request.num_seqs)
                done |= dict.fromkeys(ids, request)
            if advance is not None:
                advance(len(done) - counted)
            counted = len(done)
    if engine.loop.flight is not None and not engine.requests:
        engine.drain()  # a pass that computes in vain must not write when another engine has the model
    completions = list[Completion]()
    for first, own_params in submitted:
        samples = list(map(done.__getitem__, range(first.id, first.id + own_params.samples)))
        if own_params.best_of is not None:
            samples = best(samples, own_params)
        for request in samples:
            completions.append(
                Completion(
                    request.id,
                    request.output_text,
                    request.output_ids,
                    request.finish_reason or "",
                    request.error,
                    request.logprobs,
                    request.top_logprobs,
                    request.prompt_scores,
                )
            )
    return completions


@contextmanager
def _progress_bar(total: int) -> Iterator[Callable[[int], object] | None]:
    """Yield a function that counts finished samples. Without tqdm there is no bar."""
    try:
        tqdm = importlib.import_module("tqdm.auto").tqdm
    except ModuleNotFoundError:
        yield None
        return
    with tqdm(total=total, unit="sample") as bar:
        yield bar.update


def score(
    engine: "Engine",
    pairs: Sequence[tuple[str | Sequence[int], str | Sequence[int]]],
    *,
    progress: bool = True,
) -> list[list[float]]:
    """Return the log-probabilities of given texts, which are (prompt, continuation) pairs.

    The result has one list per pair: the natural logarithm of the probability of each token in the
    continuation. Prompt and continuation are tokenized separately, as in lm-eval. Raises
    RequestError for a pair that does not fit, and RuntimeError if the forward pass fails.
    """
    tokenizer = engine.tokenizer
    texts, lengths = list[list[int]](), list[int]()
    for prompt, continuation in pairs:
        ids = tokenizer.encode(prompt) if isinstance(prompt, str) else token_ids(prompt)
        continuation_ids = (
            tokenizer.encode_ordinary(continuation)
            if isinstance(continuation, str)
            else token_ids(continuation)
        )
        if not ids or not continuation_ids:
            raise RequestError("prompt", "prompt and continuation both need at least one token")
        texts.append(ids + continuation_ids)
        lengths.append(len(continuation_ids))
    # The single token sampled after the text costs nothing, because its KV is never computed.
    params = SamplingParams(max_tokens=1, prompt_logprobs=0)
    scored = engine.complete(texts, params, progress=progress)
    for completion in scored:
        if completion.error:
            raise RuntimeError(f"scoring failed: {completion.error}")
    return [
        [score.logprob for score in completion.prompt_scores[-length:]]
        for completion, length in zip(scored, lengths, strict=True)
    ]


def generate(  # noqa: PLR0917 - nanochat's own signature
    engine: "Engine",
    tokens: Sequence[int],
    num_samples: int = 1,
    max_tokens: int | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    seed: int = 42,
) -> Iterator[tuple[list[int], list[int]]]:
    """Generate samples of one prompt, which is computed once. Yield (token_column, token_masks).

    A column has the next token of each sample. A token's mask is 1 if it was sampled and 0 if a
    tool forced it. A row ends with <|assistant_end|>, <|bos|> or the model's own end token. This
    token is still in its column, and the row repeats it with mask 0 until all rows have ended. If
    `max_tokens` is None, a row is as long as memory and the model's context allow; without
    preemption, the samples share the memory equally.

    Steps run as you consume the generator, and they serve other requests as well. Closing the
    generator aborts the samples. At the first column, raises RequestError for a prompt that does not
    fit, and RuntimeError if the forward pass fails.
    """
    if max_tokens == 0:
        return
    if max_tokens is None:
        max_tokens = max_output(
            len(tokens), num_samples, engine.config, max_context=engine.runner.max_context
        )
    if engine.paused:
        raise RuntimeError(_PAUSED)
    params = SamplingParams(
        n=num_samples,
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=0 if top_k is None else top_k,
        seed=seed,
        stop_token_ids=tuple(sorted(_terminal_ids(engine))),
    )
    first = engine.submit(tokens, params).id
    try:
        yield from _columns(engine, first, num_samples)
    finally:
        for request_id in range(first, first + num_samples):
            engine.abort(request_id)
        if not engine.requests:
            engine.drain()  # see `complete`


def generate_batch(  # noqa: PLR0917
    engine: "Engine",
    tokens: Sequence[int],
    num_samples: int = 1,
    max_tokens: int | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    seed: int = 42,
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the rows of `generate` and their masks.

    A row includes the prompt, with mask 0, but not the terminal token.
    """
    terminal = _terminal_ids(engine)
    rows = [list(tokens) for _ in range(num_samples)]
    masks = [[0] * len(tokens) for _ in range(num_samples)]
    ended = [False] * num_samples
    for column in engine.generate(tokens, num_samples, max_tokens, temperature, top_k, seed):
        for index, (token, mask) in enumerate(zip(*column, strict=True)):
            ended[index] = ended[index] or token in terminal
            if not ended[index]:
                rows[index].append(token)
                masks[index].append(mask)
    return rows, masks


def _columns(
    engine: "Engine", first: int, num_samples: int
) -> Iterator[tuple[list[int], list[int]]]:
    rows = [list[int]() for _ in range(num_samples)]
    masks = [list[int]() for _ in range(num_samples)]
    at = 0
    while True:
        while any(at == len(row) and _is_live(engine, first, i) for i, row in enumerate(rows)):
            output = engine.step()
            for new in output.tokens:
                index = new.request.id - first
                if 0 <= index < num_samples:
                    rows[index] += new.ids
                    sampled = len(new.ids) - new.forced
                    masks[index] += [1] * sampled + [0] * new.forced
            for request in output.finished:
                if first <= request.id < first + num_samples and request.error:
                    raise RuntimeError(f"generation failed: {request.error}")
        if all(at >= len(row) for row in rows):
            return
        yield (
            [row[min(at, len(row) - 1)] for row in rows],
            [mask[at] if at < len(mask) else 0 for mask in masks],
        )
        at += 1


def _is_live(engine: "Engine", first: int, sample: int) -> bool:
    parent = engine.requests.get(first)
    unforked = parent is not None and parent.num_seqs > 1
    return unforked or first + sample in engine.requests


def _terminal_ids(engine: "Engine") -> frozenset[int]:
    ids = {engine.tokenizer.token_id("<|assistant_end|>"), engine.tokenizer.bos_id}
    return engine.tokenizer.eos_ids | {id_ for id_ in ids if id_ is not None}
