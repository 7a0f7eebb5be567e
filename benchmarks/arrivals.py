"""Requests that arrive over time, and how each system serves them, in wall time.

Every system gets the same requests at the same moments after its start. A driver returns the output
tokens of each request and the time of its first.
"""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import torch
from transformers import DynamicCache
from transformers.generation import ContinuousBatchingConfig

from benchmarks.transformers_systems import FirstToken, greedy, load
from benchmarks.underglass import Underglass
from benchmarks.workload import story_tokens
from engine import SamplingParams
from engine.models.text.hf_tokenizer import HFTokenizer


@dataclass(frozen=True)
class Arrival:
    """One request: it arrives `at` seconds after the start; its `prompt` ends in its own part."""

    at: float
    prompt: list[int]
    output: int


@dataclass
class Served:
    """The result: output tokens and seconds to the first one, by request; seconds for all."""

    tokens: list[list[int]]
    ttft: list[float]
    seconds: float = 0.0


Driver = Callable[[list[Arrival]], Served]


def ragged(tokenizer: HFTokenizer, count: int, shared: int, gap: float) -> list[Arrival]:
    """Requests with a system prompt of `shared` tokens, then 16 to 64 of their own, 16 to 96 out.

    Arrivals are a Poisson process: gaps are exponential with mean `gap` seconds. Always the same.
    """
    rng = Random(0)
    text = story_tokens(tokenizer, shared + 64 * count)
    system = [tokenizer.bos_id, *text[: shared - 1]]
    arrivals, at = [], 0.0
    for number in range(count):
        own = text[shared + 64 * number :][: rng.randint(16, 64)]
        arrivals.append(Arrival(at, system + own, rng.randint(16, 96)))
        at += rng.expovariate(1 / gap)
    return arrivals


def with_engine(system: Underglass) -> Driver:
    """One thread: requests that have arrived are submitted between two steps."""

    def serve(arrivals: list[Arrival]) -> Served:
        engine = system.engine()
        served = Served([[] for _ in arrivals], [0.0] * len(arrivals))
        number_of: dict[int, int] = {}
        start = time.perf_counter()
        while len(number_of) < len(arrivals) or engine.has_work():
            now = time.perf_counter() - start
            for number in range(len(number_of), len(arrivals)):
                one = arrivals[number]
                if one.at > now:
                    break
                params = SamplingParams(max_tokens=one.output, ignore_eos=True)
                number_of[engine.submit(one.prompt, params).id] = number
            if not engine.has_work():
                time.sleep(arrivals[len(number_of)].at - now)
                continue
            output = engine.step()
            done = time.perf_counter() - start
            for gained in output.tokens:
                number = number_of[gained.request.id]
                if not served.tokens[number]:
                    served.ttft[number] = done - arrivals[number].at
                served.tokens[number] += gained.ids
        served.seconds = time.perf_counter() - start
        return served

    return serve


def with_generate(batch: int, shared: int) -> Driver:
    """Static batches: take at most `batch` arrived requests and run until the longest is done.

    With `shared` > 0, that many tokens of the system prompt are computed once and their KV is copied
    for each batch, transformers' documented way to reuse a prefix.
    """
    model = load("sdpa")

    @torch.inference_mode()
    def serve(arrivals: list[Arrival]) -> Served:
        served = Served([], [])
        prefix = None
        start = time.perf_counter()
        while len(served.tokens) < len(arrivals):
            waiting = arrivals[len(served.tokens) :]
            now = time.perf_counter() - start
            if waiting[0].at > now:
                time.sleep(waiting[0].at - now)
                continue
            group = [one for one in waiting[:batch] if one.at <= now]
            if shared and prefix is None:
                prefix = DynamicCache(config=model.config)
                model(torch.tensor([group[0].prompt[:shared]]), past_key_values=prefix)
            longest = max(len(one.prompt) for one in group)
            # Padding goes between the shared and the own part, so that the shared part can be reused.
            ids, mask = [], []
            for one in group:
                padding = [0] * (longest - len(one.prompt))
                ids.append(one.prompt[:shared] + padding + one.prompt[shared:])
                mask.append([1] * shared + padding + [1] * (len(one.prompt) - shared))
            cache = copy.deepcopy(prefix)
            if cache is not None:
                cache.batch_repeat_interleave(len(group))
            first = FirstToken()
            output = model.generate(
                torch.tensor(ids),
                attention_mask=torch.tensor(mask),
                generation_config=greedy(max(one.output for one in group)),
                past_key_values=cache,
                streamer=first,
            )[:, longest:].tolist()
            served.tokens += [row[: one.output] for row, one in zip(output, group, strict=True)]
            served.ttft += [first.at - start - one.at for one in group]
        served.seconds = time.perf_counter() - start
        return served

    return serve


def with_generate_batch(**settings: object) -> Driver:
    """transformers' continuous batching in its own thread; requests are added as they arrive."""
    model = load("sdpa")

    def serve(arrivals: list[Arrival]) -> Served:
        manager = model.init_continuous_batching(
            generation_config=greedy(1),
            continuous_batching_config=ContinuousBatchingConfig(**settings),
        )
        manager.warmup()  # its pages; not counted
        manager.start()
        start = time.perf_counter()
        for number, one in enumerate(arrivals):
            time.sleep(max(0.0, start + one.at - time.perf_counter()))
            manager.add_request(
                one.prompt,
                request_id=str(number),
                max_new_tokens=one.output,
                record_timestamps=True,
                eos_token_id=-1,
            )
        outputs = {}
        while len(outputs) < len(arrivals):
            result = manager.get_result(timeout=60)
            assert result is not None and result.error is None, result and result.error
            outputs[int(result.request_id)] = result
        seconds = time.perf_counter() - start
        manager.stop(block=True)
        manager.destroy()
        return Served(
            [outputs[number].generated_tokens for number in range(len(arrivals))],
            [outputs[n].timestamps[0] - start - one.at for n, one in enumerate(arrivals)],
            seconds,
        )

    return serve
