"""Prefill on one simulated replica, decode on another: what `simulate_cluster(roles=...)` does.

    prefill replica   computes the prompt, as a request with max_tokens=1
    move              its KV blocks go to a decode replica: a fixed time, and a time for each block
    decode replica    adopts the blocks, and then gets the request as its client sent it

So a prompt's last tokens, those after its last whole block, are computed again, and the first token
that a client gets comes from the decode replica. The one that the prefill replica samples is dropped.

The router chooses both replicas. A decode replica does both if a move would not pay, or if no prefill
replica is alive. The gateway follows the same rules (`server/gateway/roles.py`).

Source: vLLM's proxies do the same (`toy_proxy_server.py`, among its tests), for
every request.

Differs from SGLang: it sends the prefill's token along, and the decode replica continues after it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from engine.cluster.transfer import TransferCosts, blocks_to_move
from engine.extensions.kv_transfer import Pages
from engine.simulation.simulate import ReplayEngine
from engine.simulation.workload import Arrival

# (prompt tokens, blocks here, blocks there, block size, costs) -> how many blocks to move
Rule = Callable[[int, int, int, int, TransferCosts], int]


@dataclass(frozen=True, slots=True)
class Roles:
    """How many replicas prefill and decode, what a move costs, and the rule that decides on it.

    Raises ValueError if a role has no replica.
    """

    prefill: int
    decode: int
    transfer: TransferCosts
    rule: Rule = blocks_to_move

    def __post_init__(self) -> None:
        for name in ("prefill", "decode"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1 replica, got {getattr(self, name)}")

    def of(self, number: int) -> str:
        """Return the role of a replica; those that prefill come first."""
        return "prefill" if number < self.prefill else "decode"

    def pays(self, prompt: list[int], decoders: Iterable[ReplayEngine]) -> bool:
        """Return whether the rule would move any of a prompt's blocks, once they are all computed."""
        engines = list(decoders)
        size = engines[0].config.block_size
        here = max(_cached(engine, prompt) for engine in engines)
        return self.rule(len(prompt), here, len(prompt) // size, size, self.transfer) > 0


@dataclass(frozen=True, slots=True)
class Move:
    """KV blocks on their way: those of `tokens` from block `first` on."""

    source: str
    tokens: list[int]
    first: int
    pages: Pages

    @classmethod
    def start(
        cls, roles: Roles, prompt: list[int], source: str, there: ReplayEngine, here: ReplayEngine
    ) -> "Move":
        """Ask the rule how many blocks to move from `there` to `here`, and copy them."""
        size, cached = here.config.block_size, _cached(here, prompt)
        other = there.kv_transfer.cached_blocks(prompt)
        blocks = roles.rule(len(prompt), cached, other, size, roles.transfer)
        tokens = prompt[: (cached + blocks) * size]
        return cls(source, tokens, cached, there.kv_transfer.export(tokens, cached))

    def finish(self, here: ReplayEngine) -> None:
        """Put the blocks into the prefix cache of `here`."""
        here.kv_transfer.adopt(self.tokens, self.pages.data, first=self.first, source=self.source)


def _cached(engine: ReplayEngine, prompt: list[int]) -> int:
    """Return how many blocks a request with this prompt would find: never the last token's."""
    whole = (len(prompt) - 1) // engine.config.block_size
    cached: int = engine.kv_transfer.cached_blocks(prompt)
    return min(cached, whole)


def prefill_of(one: Arrival) -> Arrival:
    """Return the request that computes a prompt, and one token."""
    params = msgspec.structs.replace(one.params, max_tokens=1, min_tokens=0)
    return Arrival(one.step, one.at_ms, one.prompt, params, one.label, one.priority, one.texts)
