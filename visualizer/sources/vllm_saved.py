"""Convert the vLLM state at the start of a rotated recording's later file to our engine's state."""

from collections.abc import Callable
from typing import Any

from engine.core.log.vocabulary import SCHEMA_VERSION
from visualizer.sources.hash_memory import HashMemory
from visualizer.sources.vllm_lines import Saved, Tokens, known_ids


def saved_state(
    saved: Saved,
    memory: HashMemory,
    read: Callable[[int, Tokens], tuple[list[int], list[str]]],
    settings: dict[str, Any],
    source: dict[str, Any],
) -> dict[str, Any]:
    """Return the state for a keyframe. `memory` must already have the saved tables and cached blocks.

    read  returns the ids and the texts of a request's tokens
    """
    size = settings["block_size"]
    nodes = {id_: _node(id_, one.parent, one.blocks, size) for id_, one in memory.nodes.items()}
    requests: list[dict[str, Any]] = []
    for one in sorted(saved.requests, key=lambda one: one.request):
        owner = memory.owners[one.request]
        prompt, texts = read(one.request, one.prompt)
        output, output_texts = read(one.request, one.output)
        tokens, texts = prompt + output, texts + output_texts
        for index, id_ in enumerate(owner.path):
            part = slice(index * size, (index + 1) * size)
            nodes[id_] |= {"tokens": tokens[part], "texts": texts[part]}
        requests.append(
            {
                "id": one.request,
                "root": one.request,
                "sample": 0,
                "prompt_length": len(prompt),
                "tokens": tokens,
                "texts": texts,
                "computed": one.computed,
                "table": one.table,
                "lock": owner.path[-1] if owner.path else 0,
                "slots": 1,
                "preemptions": one.preemptions,
                "label": one.id,
                "priority": one.priority,
                "max_tokens": one.max_tokens,
                "sampling": {},
            }
        )
    plans = {
        step: [[row.request, row.start, row.count, known_ids(row.drafts)] for row in rows]
        for step, rows in saved.in_flight
    }
    cached = set(saved.cached)
    return {
        "schema": SCHEMA_VERSION,
        "settings": settings,
        "classes": {},
        "source": source,
        "step": saved.step,
        "tick": 0,
        "paused": False,
        "waiting": saved.waiting,
        "running": saved.running,
        "plan": plans.pop(saved.step, []),
        "in_flight": [[step, rows] for step, rows in plans.items()],
        "free": [block for block in reversed(saved.free) if block not in cached],
        "queue": [block for block in saved.free if block in cached],
        "requests": requests,
        "nodes": [_node(0, -1, [], 0), *nodes.values()],
        "holds": [],
    }


def put_cached(memory: HashMemory, saved: Saved) -> None:
    """Put the cached blocks into the tree, each one after its parent.

    Raises ValueError if a block's parent is not cached.
    """
    parents = dict(zip(saved.hashes, saved.parents, strict=True))
    blocks: dict[str, list[int]] = {hash_: [] for hash_ in parents}
    for hash_, block in zip(saved.hashes, saved.cached, strict=True):
        blocks[hash_].append(block)
    below: dict[str, list[str]] = {}
    for hash_, parent in parents.items():
        below.setdefault(parent, []).append(hash_)
    ready = [(hash_, 0) for hash_ in below.get("", [])]
    while ready:
        hash_, parent_id = ready.pop()
        for block in blocks.pop(hash_):
            node = memory.put(block, hash_, parent_id)
        ready += [(child, node) for child in below.get(hash_, [])]
    if blocks:
        raise ValueError(f"{len(blocks)} cached blocks follow blocks that are not cached")


def _node(id_: int, parent: int, blocks: list[int], size: int) -> dict[str, Any]:
    """Return a keyframe's node with unknown tokens; the caller sets those that a request has."""
    return {
        "id": id_,
        "parent": parent,
        "tokens": [-1] * size,
        "texts": [""] * size,
        "blocks": blocks[:1],
        "copies": blocks[1:],
        "last": 0,
        "lock": 0,
        "source": "",
    }
