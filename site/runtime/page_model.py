"""The bundled model in a page: the engine's `Runner` on top of the model in JavaScript.

    rows -> flat arrays -> JavaScript: forward pass, likeliest tokens -> Python: the rest of sampling

The model is in `visualizer/frontend/src/site/model/`. The engine's own code chooses the tokens:
`compute/sampling_reference.py`, `runner.py` and `speculation/verification.py` of `engine/core`.
So a request gets the same tokens as with torch, even if they are sampled.

A page has no other models and no half precision. It also lacks the part `attention`, which computes
with torch, structured output by llguidance, and threads, which `async_scheduling` needs.
"""

import heapq
import json
import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import engine
from engine import Engine
from engine.core.compute.sampling_reference import draw, probabilities, process_logits
from engine.core.config import ConfigError, EngineConfig
from engine.core.request import TokenScore
from engine.core.runner import (
    KVFormat,
    LogitPosition,
    Row,
    Sampled,
    SamplerOutput,
    TokenMask,
    logit_positions,
    uniform,
)
from engine.core.speculation.verification import Verifier, apply_verifier, split_output
from engine.models.text.byte_pair_tokenizer import BytePairTokenizer

BUNDLED = Path(engine.__file__).parent / "bundled"
_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Logits:
    """The logits that a forward pass returns for each of its wanted tokens.

    values     [wanted * vocab] the logits
    likeliest  [wanted] the token with the highest logit
    log_sums   [wanted] the number to subtract from a logit to get the token's log-probability
    """

    values: Sequence[float]
    likeliest: list[int]
    log_sums: list[float]


class Rows(list[Any]):
    """What a learner's `logits_to_probs` gets in a page: lists with two methods of a tensor."""

    def tolist(self) -> list[Any]:
        """Return the rows as a list."""
        return list(self)

    def new_tensor(self, rows: list[Any]) -> "Rows":
        """Return other rows of this kind."""
        return Rows(rows)


LogitsToProbs = Callable[[Rows, Rows, Rows, Rows, Rows], Rows]


class PageCache:
    """Wraps the KV memory in JavaScript for Python; see `model/kv_cache.ts`."""

    def __init__(self, cache: Any) -> None:
        self.js = cache
        self.copy: Callable[[int, int], None] = cache.copy

    def read(self, block: int) -> bytes:
        """Return a block's page."""
        page: bytes = self.js.read(block).to_bytes()
        return page

    def write(self, block: int, page: bytes) -> None:
        """Write a block's page."""
        from pyodide.ffi import to_js

        self.js.write(block, to_js(array("f", page)))


class PageModel:
    """Wraps the model in JavaScript for Python; see `model/index.ts`. Each array is copied once."""

    def __init__(self, model: Any) -> None:
        self._js = model
        self.parameters: int = model.parameters

    def new_cache(self, num_blocks: int, block_size: int) -> PageCache:
        """Return KV memory. Raises MemoryError if there is not enough."""
        from pyodide.ffi import JsException

        try:
            return PageCache(self._js.newCache(num_blocks, block_size))
        except JsException as error:
            raise MemoryError(str(error)) from error

    def forward(self, cache: PageCache, *arrays: "array[int]") -> Logits:
        """Compute a step.

        The arrays are token ids [tokens], each row's start [rows] and number of tokens [rows], block
        tables [rows, widest table], and the tokens whose logits are wanted.
        """
        from pyodide.ffi import to_js

        result = self._js.forward(cache.js, *map(to_js, arrays))
        values = result.logits.to_memoryview()
        return Logits(values, result.likeliest.to_py().tolist(), result.logSums.to_py().tolist())


class PageRunner:
    """Implements `engine.core.runner.Runner` with the JavaScript model.

    verifier         a learner's own verifier of drafts; None uses the engine's
    logits_to_probs  a learner's own function for requests that are not greedy, which gets and returns
                     `Rows`; None uses the engine's
    """

    window: int | None = None
    kv_dtype = "auto"
    expert_loads: Sequence[Sequence[int]] = ()

    def __init__(self, model: PageModel, config: dict[str, Any]) -> None:
        self._model, self._config = model, config
        self.max_context: int | None = config["max_position_embeddings"]
        self.vocab_size: int = config["vocab_size"]
        self.verifier: Verifier | None = None
        self.logits_to_probs: LogitsToProbs | None = None
        self._cache: PageCache | None = None
        self._num_blocks = self._block_size = 0

    def describe(self) -> dict[str, Any]:
        """Return the model's sizes and its KV memory in bytes."""
        config = self._config
        reserved = self._num_blocks * self._block_size
        return {
            "name": "bundled",
            "architecture": config["architectures"][0],
            "parameters": self._model.parameters,
            "layers": config["num_hidden_layers"],
            "hidden_size": config["hidden_size"],
            "heads": config["num_attention_heads"],
            "kv_heads": config["num_key_value_heads"],
            "head_dim": config["head_dim"],
            "vocab_size": self.vocab_size,
            "max_context": self.max_context,
            "dtype": "float32",
            "device": "cpu",
            "weight_bytes": self._model.parameters * _FLOAT_BYTES,
            "kv_bytes_per_token": self._token_bytes,
            **({"kv_bytes": reserved * self._token_bytes} if self._cache else {}),
        }

    @property
    def _token_bytes(self) -> int:
        """The bytes of a token's keys and values in all layers."""
        return math.prod(self._page_shape(1)) * _FLOAT_BYTES

    def _page_shape(self, block_size: int) -> tuple[int, ...]:
        config = self._config
        heads = config["num_key_value_heads"]
        return config["num_hidden_layers"], block_size, 2, heads, config["head_dim"]

    # Parts that need torch

    @property
    def attention(self) -> None:
        """Always None; see `attention.ts`."""

    @attention.setter
    def attention(self, part: object) -> None:
        raise ConfigError(
            f"attention must be None in a page, which computes it in JavaScript, got {part!r}: "
            "run this where Underglass is installed"
        )

    @property
    def kv_cache(self) -> object:
        """Raise AttributeError."""
        raise AttributeError(
            "a page's runner has no kv_cache, because its KV memory is in JavaScript: "
            "use runner.read_pages([block]) to read a block"
        )

    # KV memory

    def reserve(
        self, num_blocks: int, block_size: int, num_window_pages: int | None = None
    ) -> None:
        """Allocate the KV cache. Raises ConfigError if the page has no room for it."""
        del num_window_pages  # no layer has a sliding window
        self._cache = None
        try:
            self._cache = self._model.new_cache(num_blocks, block_size)
        except MemoryError as error:
            raise ConfigError(
                f"max_kv_tokens: the page has no memory for {num_blocks * block_size} tokens of "
                f"{self._token_bytes} bytes; lower it ({error})"
            ) from error
        self._num_blocks, self._block_size = num_blocks, block_size

    def map_window_pages(self, pages: Sequence[tuple[int, int]]) -> None:
        """Never called, because no layer has a sliding window."""

    def kv_format(self) -> KVFormat:
        """Return the format of a page: the KV of one block in all layers."""
        shape = self._page_shape(self._block_size)
        return KVFormat(
            "bundled, computed in a page", "float32", shape, math.prod(shape) * _FLOAT_BYTES
        )

    def read_pages(self, blocks: Sequence[int]) -> bytes:
        """Return the pages of blocks, in the layout that `kv_format` returns."""
        return b"".join(map(self._reserved().read, blocks))

    def write_pages(self, blocks: Sequence[int], pages: memoryview) -> None:
        """Write one page to each of `blocks`."""
        size = self.kv_format().page_bytes
        for i, block in enumerate(blocks):
            self._reserved().write(block, bytes(pages[i * size : (i + 1) * size]))

    def _reserved(self) -> PageCache:
        if self._cache is None:
            raise RuntimeError("reserve(num_blocks, block_size) must be called first")
        return self._cache

    # A step

    def run(self, rows: Sequence[Row], copies: Sequence[tuple[int, int]]) -> list[list[Sampled]]:
        """Copy blocks, then compute all rows in one forward pass; see `Runner`."""
        cache = self._reserved()
        for source, destination in copies:
            cache.copy(source, destination)
        if not rows:
            return []
        positions = [position for row in rows for position in logit_positions(row)]
        logits = self._forward(cache, rows)
        if any(map(math.isnan, logits.log_sums)):
            raise FloatingPointError("the model's logits are not finite: its weights are damaged")
        step = _Step(logits, self.vocab_size, self.logits_to_probs)
        index = len(positions)
        for row in rows:
            for _ in range(row.scored):
                row.scores.append(step.score(index, row))
                index += 1
        output = step.sample(positions)
        results = split_output(rows, output)
        if self.verifier is not None and any(row.drafts for row in rows):
            probs = [step.probs(i, position) for i, position in enumerate(positions)]

            def report(first: int, ids: list[int]) -> Sampled:
                reported = [
                    step.report(first + i, positions[first + i], token)
                    for i, token in enumerate(ids)
                ]
                logprobs, top = zip(*reported, strict=True)
                kept = [
                    output.masks[first + i] for i in range(len(ids)) if first + i in output.masks
                ]
                return Sampled(ids, list(logprobs), [one for one in top if one is not None], kept)

            apply_verifier(self.verifier, rows, positions, results, probs=probs, report=report)
        return results

    def _forward(self, cache: PageCache, rows: Sequence[Row]) -> Logits:
        """Lay the rows out as flat arrays and compute them.

        As in `compute/torch_runner.py`, logits are wanted first for the tokens with a position to
        sample, then for the tokens that score a prompt.
        """
        ids, wanted, scored = array("i"), array("i"), array("i")
        width = max(-(-(row.start + row.count) // self._block_size) for row in rows)
        tables = array("i")
        for row in rows:
            first, table = len(ids), row.request.block_table
            end = row.start + row.count
            needed = -(-end // self._block_size)
            if needed > len(table):
                raise ValueError(
                    f"request {row.request.id} has {len(table)} KV blocks but needs {needed}"
                )
            ids.extend(row.request.tokens[row.start : end - len(row.drafts)])
            ids.extend(row.drafts)
            last = len(ids) - 1 - len(row.drafts)
            wanted.extend([last + len(one.drafts) for one in logit_positions(row)])
            scored.extend(range(first, first + row.scored))
            tables.extend(table[:needed] + [0] * (width - needed))
        starts = array("i", [row.start for row in rows])
        counts = array("i", [row.count for row in rows])
        return self._model.forward(cache, ids, starts, counts, tables, wanted + scored)


class _Step:
    """The logits of a step, and the tokens and probabilities computed from them."""

    def __init__(
        self, logits: Logits, vocab_size: int, logits_to_probs: LogitsToProbs | None
    ) -> None:
        self._logits, self._vocab_size = logits, vocab_size
        self._logits_to_probs = logits_to_probs

    def sample(self, positions: Sequence[LogitPosition]) -> SamplerOutput:
        """Return a token for each position; see `compute/sampler.py`."""
        output = SamplerOutput([], [])
        for i, position in enumerate(positions):
            number = uniform(position.request.seed, position.sample, position.position)
            if position.request.constraint is not None:
                output.masks[i] = self._mask(i, position)
            if position.params.temperature > 0:
                token = draw(self.probs(i, position), number)
            else:
                token = self._best(i, position)
            logprob, top = self.report(i, position, token)
            output.token_ids.append(token)
            output.logprobs.append(logprob)
            if top is not None:
                output.top_logprobs[i] = top
        return output

    def report(
        self, i: int, position: LogitPosition, token: int
    ) -> tuple[float, list[tuple[int, float]] | None]:
        """Return a token's log-probability and, if the request asks for them, the likeliest tokens."""
        if position.params.logprobs is None and not position.params.logit_bias:
            return self._logits.values[i * self._vocab_size + token] - self._logits.log_sums[
                i
            ], None
        logprobs = self._logprobs(i, position.params.logit_bias)
        count = position.params.logprobs
        return logprobs[token], None if count is None else _top(logprobs, count)

    def score(self, i: int, row: Row) -> TokenScore:
        """Return the next score of a row's prompt."""
        token = row.request.tokens[row.start + 1 + len(row.scores)]
        logprobs = self._logprobs(i)
        own = logprobs[token]
        rank = sum(one >= own for one in logprobs)
        return TokenScore(own, _top(logprobs, row.request.params.prompt_logprobs or 0), rank)

    def probs(self, i: int, position: LogitPosition) -> list[float]:
        """Return the probabilities that a position's token is drawn with."""
        params = position.params
        if params.temperature == 0:
            best = self._best(i, position)
            return [float(token == best) for token in range(self._vocab_size)]
        logits = self._processed(i, position)
        if self._logits_to_probs is None:
            return probabilities(logits, params)
        settings = params.temperature, params.min_p, params.top_k, params.top_p
        rows = self._logits_to_probs(Rows([logits]), *(Rows([one]) for one in settings))
        [probs] = map(list[float], rows.tolist())
        return probs

    def _best(self, i: int, position: LogitPosition) -> int:
        if _is_plain(position):
            return self._logits.likeliest[i]
        logits = self._processed(i, position)
        return logits.index(max(logits))

    def _row(self, i: int) -> list[float]:
        return list(self._logits.values[i * self._vocab_size : (i + 1) * self._vocab_size])

    def _processed(self, i: int, position: LogitPosition) -> list[float]:
        """Return the logits after bias, penalties, bans and masks."""
        logits = self._row(i)
        return logits if _is_plain(position) else process_logits(logits, position)

    def _logprobs(self, i: int, bias: dict[int, float] | None = None) -> list[float]:
        """Return the natural logarithms of the probabilities, after the bias."""
        logits, log_sum = self._row(i), self._logits.log_sums[i]
        if bias:
            for token, change in bias.items():
                logits[token] += change
            best = max(logits)
            log_sum = best + math.log(sum(math.exp(one - best) for one in logits))
        return [one - log_sum for one in logits]

    def _mask(self, i: int, position: LogitPosition) -> TokenMask:
        """Return how much probability a constraint allows; see `compute/logits_processors.py`."""
        assert position.request.constraint is not None
        mask = position.request.constraint.mask(position.output())
        logprobs = self._logprobs(i, position.params.logit_bias)
        allowed = [token for token in range(self._vocab_size) if mask >> token & 1]
        best = logprobs.index(max(logprobs))
        mass = math.fsum(math.exp(logprobs[token]) for token in allowed)
        return TokenMask(len(allowed), None if mask >> best & 1 else best, mass)


def _is_plain(position: LogitPosition) -> bool:
    """Return whether the logits stay unchanged, which is the usual case and needs no work in Python."""
    params = position.params
    return not (
        params.logit_bias
        or params.repetition_penalty != 1
        or params.frequency_penalty
        or params.presence_penalty
        or params.min_tokens > position.output_length
        or params.bad_words
        or params.allowed_token_ids
        or position.request.constraint is not None
    )


def _top(logprobs: list[float], count: int) -> list[tuple[int, float]]:
    """Return the `count` most likely tokens, the likeliest first, ties in order of their ids."""
    ids = heapq.nsmallest(count, range(len(logprobs)), key=lambda token: -logprobs[token])
    return [(token, logprobs[token]) for token in ids]


@cache
def tokenizer() -> BytePairTokenizer:
    """Return the bundled model's tokenizer."""
    return BytePairTokenizer(BUNDLED, "bundled")


class PageLoader:
    """Loads the bundled model for `Engine.load`; as `engine.models.loader` does.

    fetch  returns the model; called once, when it is first needed
    """

    def __init__(self, fetch: Callable[[], PageModel]) -> None:
        self._fetch = lru_cache(fetch)

    def load(
        self,
        model: str | Path,
        *,
        engine: EngineConfig,
        dtype: str = "auto",
        device: str = "cpu",
        **drafts: Any,
    ) -> tuple[PageRunner, BytePairTokenizer]:
        """Return a runner with KV memory of its own, and the tokenizer. Raises ConfigError."""
        del drafts  # `load_draft_model` checks them
        if engine.async_scheduling:
            raise ConfigError(
                "async_scheduling must be False in a page, which has no threads, got True: run this "
                "where Underglass is installed"
            )
        if engine.kv_dtype != "auto":
            raise ConfigError(
                f'kv_dtype must be "auto" in a page, because PageRunner stores float32, got '
                f"{engine.kv_dtype!r}: run this where Underglass is installed"
            )
        runner = self._runner(model, dtype, device)
        # Reserve before the engine lists its blocks: the list would exhaust Python's memory first.
        runner.reserve(engine.num_blocks, engine.block_size)
        return runner, tokenizer()

    def load_draft_model(
        self,
        model: str | Path,
        target: object,
        tokenizer: object,
        *,
        dtype: str = "auto",
        device: str = "cpu",
    ) -> PageRunner:
        """Return a second runner: the bundled model can only draft for itself."""
        del target, tokenizer
        return self._runner(model, dtype, device)

    def _runner(self, model: str | Path, dtype: str, device: str) -> PageRunner:
        here = "in a page, which has only the bundled model, in float32 on the CPU"
        for field, value, allowed in (
            ("model", model, ("bundled",)),
            ("dtype", dtype, ("auto", "float32")),
            ("device", device, ("cpu",)),
        ):
            if value not in allowed:
                values = " or ".join(f'"{one}"' for one in allowed)
                raise ConfigError(
                    f"{field} must be {values} {here}, got {str(value)!r}: to use another {field}, "
                    "run this where Underglass is installed"
                )
        config = json.loads((BUNDLED / "config.json").read_text("utf-8"))
        return PageRunner(self._fetch(), config)


def install(fetch: Callable[[], Any]) -> None:
    """Make `Engine.load("bundled")` use a model in JavaScript.

    `fetch` returns what `loadModel` in JavaScript returned. It is called when a model is first loaded,
    so a reader who only simulates does not download five megabytes.
    """
    Engine.loader = PageLoader(lambda: PageModel(fetch()))
