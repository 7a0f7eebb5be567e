"""KV events for tests: random caches, and the chains of tokens that a log says are cached."""

import random
from typing import Any

import msgspec

from engine.core.log.fold import State
from engine.core.log.vocabulary import Event
from visualizer.sources.frames import write_frame
from visualizer.sources.kv_events import KVTranslator

SIZE = 4
Chain = tuple[int, ...]


def line(seq: int, events: list[Any], rank: int | None = 0, ts: float | None = None) -> bytes:
    """A line of a capture with one message."""
    ts = 1_000.0 + seq if ts is None else ts
    payload = msgspec.msgpack.encode([ts, events, rank])
    return write_frame(b"kv", seq, payload, ts)


def stored(hashes: list[Any], parent: Any, tokens: list[int], **more: Any) -> dict[str, Any]:
    """A BlockStored event as a map."""
    return {
        "type": "BlockStored", "block_hashes": hashes, "parent_block_hash": parent,
        "token_ids": tokens, "block_size": SIZE, "lora_id": None, "medium": "GPU", **more,
    }  # fmt: skip


def removed(hashes: list[Any], **more: Any) -> dict[str, Any]:
    """A BlockRemoved event as a map."""
    return {"type": "BlockRemoved", "block_hashes": hashes, "medium": "GPU", **more}


def translated(lines: list[bytes]) -> list[Event]:
    """The log of a capture."""
    translator = KVTranslator()
    events = [event for one in lines for event in translator.feed(one)]
    return events + translator.end()


def folded(events: list[Event]) -> State:
    """The state at the end of a log."""
    state = State()
    for event in events:
        state.apply(event)
    return state


def chains(state: State) -> set[Chain]:
    """Each cached block's prefix, as the tokens from the root to its end."""
    return {tuple(state.prefix_tokens(node.id)) for node in state.nodes.values() if node.blocks}


def random_capture(seed: int, messages: int = 40) -> list[bytes]:
    """Return a cache with everything that is rare: tiers, copies, gaps, an unknown start."""
    rng = random.Random(seed)
    known: list[int] = []
    lines = list[bytes]()
    seq, fresh = rng.randrange(3), 100
    for _ in range(messages):
        events = list[Any]()
        for _ in range(rng.randint(1, 3)):
            medium = rng.choice(["GPU", "GPU", "GPU", "CPU"])
            kind = rng.random()
            if kind < 0.6 or not known:
                unknown_parent = rng.random() < 0.1
                parent = rng.choice([None, *known]) if not unknown_parent else rng.randrange(1, 50)
                count = rng.randint(1, 3)
                again = known and rng.random() < 0.2
                hashes = [rng.choice(known)] if again else list(range(fresh, fresh + count))
                fresh += count
                tokens = [token for one in hashes for token in range(one, one + SIZE)]
                if again:
                    parent = None
                    tokens = []
                known += [one for one in hashes if one not in known]
                events.append(stored(hashes, parent, tokens, medium=medium))
            elif kind < 0.98:
                count = min(len(known), rng.randint(1, 4))
                events.append(removed(rng.sample(known, count), medium=medium))
            else:
                events.append({"type": "AllBlocksCleared"})
                known.clear()
        lines.append(line(seq, events))
        seq += 1 if rng.random() < 0.9 else rng.randint(2, 5)
        if rng.random() < 0.02:
            seq = 0
    return lines
