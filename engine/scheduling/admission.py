"""Which requests can be served at all: checked at submission, so that none waits forever.

A request that passes here will end, whatever else the engine does: alone in memory it fits, and
everybody else can be preempted or waited for.
"""

from collections.abc import Iterable, Sequence

from engine.config import EngineConfig
from engine.scheduling.sampling_params import SamplingParams, is_whole

MOST_PRIORITY = 2**31  # far more than anybody needs, and a number for whoever reads the log


class RequestError(ValueError):
    """A request cannot be taken. `field` names what is wrong with it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


def ids_of(prompt: object) -> list[int]:
    """A prompt of token ids as a list; raises RequestError for what is no sequence."""
    if not isinstance(prompt, Sequence):
        got = type(prompt).__name__
        raise RequestError("prompt", f"must be text or a list of token ids, got {got}")
    return list(prompt)


def check_request(
    tokens: Sequence[int],
    params: SamplingParams,
    priority: int,
    *,
    config: EngineConfig,
    vocab_size: int,
    max_context: int | None,
) -> None:
    """Raise RequestError, which names the field and the fix, for a request that never fits."""
    if not isinstance(params, SamplingParams):
        raise RequestError("params", f"must be SamplingParams(...), got {params!r}")
    if not tokens:
        raise RequestError("prompt", "is empty; give it at least one token")
    for field, ids in (
        ("prompt", tokens),
        ("logit_bias", params.logit_bias),
        ("stop_token_ids", params.stop_token_ids),
    ):
        _check_ids(field, ids, vocab_size)
    if not is_whole(priority) or abs(priority) > MOST_PRIORITY:
        what = f"a whole number from -{MOST_PRIORITY} to {MOST_PRIORITY}"
        raise RequestError("priority", f"must be {what}, got {priority!r}")
    whole = worst_case(len(tokens), params.max_tokens, 1, config)
    if whole > config.num_blocks:
        raise RequestError(
            "prompt" if config.blocks_for(len(tokens)) > config.num_blocks else "max_tokens",
            f"{len(tokens)} prompt tokens and up to {params.max_tokens} output tokens need "
            f"{whole} KV blocks of {config.block_size}, memory has "
            f"{config.num_blocks}: shorten the prompt, lower max_tokens or raise max_kv_tokens",
        )
    if max_context is not None and len(tokens) + params.max_tokens > max_context:
        raise RequestError(
            "prompt" if len(tokens) >= max_context else "max_tokens",
            f"{len(tokens)} prompt tokens and up to {params.max_tokens} output tokens exceed "
            f"the model's context of {max_context}",
        )
    many = "n" if params.best_of is None else "best_of"
    if params.samples > config.max_batch_size:
        raise RequestError(
            many,
            f"{params.samples} samples need as many places in the batch, max_batch_size is "
            f"{config.max_batch_size}",
        )
    reserve = most_blocks(len(tokens), params, config)
    if reserve > config.num_blocks:
        raise RequestError(
            many,
            f"with preemption off, {params.samples} samples reserve {reserve} KV blocks, memory "
            f"has {config.num_blocks}",
        )
    if not config.chunked_prefill and len(tokens) > config.token_budget:
        raise RequestError(
            "prompt",
            f"{len(tokens)} tokens can never fit into a step of {config.token_budget} while "
            "chunked_prefill is off: shorten the prompt, raise token_budget or allow chunks",
        )


def most_blocks(prompt_length: int, params: SamplingParams, config: EngineConfig) -> int:
    """KV blocks that a request must be able to get when it is alone, or it might never end.

    With preemption, one sample at a time is enough.
    """
    samples = 1 if config.preemption else params.samples
    return worst_case(prompt_length, params.max_tokens, samples, config)


def worst_case(prompt_length: int, max_tokens: int, samples: int, config: EngineConfig) -> int:
    """KV blocks that so many samples of a prompt hold together when all of them are at max_tokens.

    They share the full blocks of the prompt. The last sampled token is never computed, so it needs no
    slot.
    """
    whole = config.blocks_for(prompt_length + max_tokens - 1)
    shared = prompt_length // config.block_size
    return shared + samples * (whole - shared)


def _check_ids(field: str, ids: Iterable[int], vocab_size: int) -> None:
    for token in ids:
        if not is_whole(token):
            raise RequestError(field, f"token ids are whole numbers, got {token!r}")
        if not 0 <= token < vocab_size:
            raise RequestError(
                field, f"token id {token} is not in the vocabulary (0 to {vocab_size - 1})"
            )
