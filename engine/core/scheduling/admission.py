"""Reject a request on submission if it can never be served, so that no request waits forever.

A request that passes these checks will finish, because it fits into memory on its own and every
other request can be preempted or will finish first.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from engine.core.config import EngineConfig
from engine.core.extras import extension
from engine.core.request import Constraint
from engine.core.sampling_params import SamplingParams
from engine.core.tokenizer import Tokenizer

MAX_PRIORITY = 2**31


class RequestError(ValueError):
    """A request cannot be accepted. `field` names the invalid field."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class ContextLengthError(RequestError):
    """The prompt, or the prompt and its output, do not fit the model's context or the memory.

    longest   the largest number of tokens that fits
    """

    def __init__(self, field: str, message: str, longest: int) -> None:
        super().__init__(field, message)
        self.longest = longest


def token_ids(prompt: object) -> list[int]:
    """Return a prompt of token ids as a list. Raises RequestError if it is not a sequence."""
    if not isinstance(prompt, Sequence):
        got = type(prompt).__name__
        raise RequestError("prompt", f"must be text or a list of token ids, got {got}")
    return list(prompt)


def required_blocks(prompt_length: int, params: SamplingParams, config: EngineConfig) -> int:
    """Count the KV blocks that a request needs to finish when it runs alone.

    With preemption, blocks for one sample are enough, because the samples can run one after
    another. Samples beyond the batch's seats always run later.
    """
    samples = 1 if config.preemption else min(params.samples, config.max_batch_size)
    return max_blocks(prompt_length, params.max_tokens, samples, config)


def max_blocks(prompt_length: int, max_tokens: int, samples: int, config: EngineConfig) -> int:
    """Count the KV blocks that all samples of a prompt need if each of them reaches max_tokens.

    The samples share the full blocks of the prompt. The last sampled token is never computed and
    needs no slot. SGLang's forecast counts it, and two blocks more.
    """
    spare = -1 if config.scheduler == "vllm" else 2 * config.block_size + 1
    whole = -(-(prompt_length + max_tokens + spare) // config.block_size)
    shared = prompt_length // config.block_size
    return shared + samples * (whole - shared)


def max_output(
    prompt_length: int, samples: int, config: EngineConfig, *, max_context: int | None
) -> int:
    """Return the largest `max_tokens` with which every sample of a prompt can be served.

    The result is at least 1, even for a prompt that is too long: `RequestValidator` rejects
    that prompt with an error that says so.
    """
    at_once = 1 if config.preemption else max(1, min(samples, config.max_batch_size))
    shared = prompt_length // config.block_size
    blocks = shared + (config.num_blocks - shared) // at_once
    spare = -1 if config.scheduler == "vllm" else 2 * config.block_size + 1  # see `max_blocks`
    longest = blocks * config.block_size - spare - prompt_length
    if max_context is not None:
        longest = min(longest, max_context - prompt_length)
    return max(1, longest)


def _check_ids(field: str, ids: Iterable[int], vocab_size: int) -> None:
    for token in ids:
        if not isinstance(token, int) or isinstance(token, bool):
            raise RequestError(field, f"token ids must be whole numbers, got {token!r}")
        if not 0 <= token < vocab_size:
            raise RequestError(
                field, f"token id {token} is not in the vocabulary (0 to {vocab_size - 1})"
            )


def bad_word_ids(params: SamplingParams, tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """Return the token sequences of `params.bad_words`, at least one. Raises RequestError."""
    try:
        found: tuple[tuple[int, ...], ...] = extension("bad_words").bad_word_ids(
            params.bad_words, tokenizer
        )
    except ValueError as error:
        raise RequestError("bad_words", str(error)) from error
    return found


@dataclass
class RequestValidator:
    """Validates requests. Any thread may call it."""

    _config: EngineConfig
    _tokenizer: Tokenizer

    @cached_property
    def _grammars(self) -> Any:
        """The compiler of what outputs must match, loaded for the first request that asks for it."""
        return extension("grammars.grammar").GrammarCompiler(self._tokenizer)

    def validate(
        self,
        tokens: Sequence[int],
        params: SamplingParams,
        priority: int,
        *,
        max_context: int | None,
    ) -> None:
        """Raise RequestError, with the field and the fix, for a request that can never be served.

        What `structured` asks for is compiled by `constraint`.
        """
        config, vocab_size = self._config, self._tokenizer.vocab_size
        if not isinstance(params, SamplingParams):
            raise RequestError("params", f"must be SamplingParams(...), got {params!r}")
        if not tokens:
            raise RequestError("prompt", "is empty; give it at least one token")
        _check_ids("prompt", tokens, vocab_size)
        _check_ids("logit_bias", params.logit_bias, vocab_size)
        _check_ids("stop_token_ids", params.stop_token_ids, vocab_size)
        _check_ids("allowed_token_ids", params.allowed_token_ids or (), vocab_size)
        whole = isinstance(priority, int) and not isinstance(priority, bool)
        if not whole or abs(priority) > MAX_PRIORITY:
            bounds = f"a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}"
            raise RequestError("priority", f"must be {bounds}, got {priority!r}")
        length = f"{len(tokens)} prompt tokens and up to {params.max_tokens} output tokens"
        if max_context is not None and len(tokens) + params.max_tokens > max_context:
            raise ContextLengthError(
                "prompt" if len(tokens) >= max_context else "max_tokens",
                f"{length} exceed the model's context of {max_context}: shorten the prompt or lower "
                "max_tokens",
                max_context,
            )
        memory = config.max_kv_tokens // config.block_size
        need = max_blocks(len(tokens), params.max_tokens, 1, config)
        if need > memory:
            raise ContextLengthError(
                "prompt" if config.blocks_for(len(tokens)) > memory else "max_tokens",
                f"{length} need {need} KV blocks of {config.block_size}, but memory has "
                f"{memory}: shorten the prompt, lower max_tokens or raise max_kv_tokens",
                memory * config.block_size
                - (-1 if config.scheduler == "vllm" else 2 * config.block_size + 1),
            )
        if (
            not config.preemption
            and (need := required_blocks(len(tokens), params, config)) > memory
        ):
            samples = "n" if params.best_of is None else "best_of"
            raise RequestError(
                samples,
                f"with preemption off, {min(params.samples, config.max_batch_size)} samples reserve "
                f"{need} KV blocks, but memory has {memory}: lower {samples} or max_tokens, "
                "raise max_kv_tokens or turn preemption on",
            )
        if not config.chunked_prefill and len(tokens) > config.token_budget:
            raise ContextLengthError(
                "prompt",
                f"{len(tokens)} tokens do not fit into a step of {config.token_budget}: shorten the "
                "prompt, raise token_budget or turn chunked_prefill on",
                config.token_budget,
            )
        if params.bad_words:
            bad_word_ids(params, self._tokenizer)

    def prepare(self) -> None:
        """Prepare for structured outputs, so that the first one does not delay other requests."""
        self._grammars.prepare()

    def constraint(self, params: SamplingParams) -> Constraint | None:
        """Compile what the output must match, if anything. Raises RequestError."""
        if params.structured is None:
            return None
        try:
            constraint: Constraint = self._grammars.constraint(
                params.structured, ignore_eos=params.ignore_eos
            )
        except extension("grammars.grammar_error").GrammarError as error:
            raise RequestError("structured", str(error)) from error
        return constraint
