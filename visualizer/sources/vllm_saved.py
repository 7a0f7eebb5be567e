"""Convert the vLLM state at the start of a rotated recording's later file to our engine's state."""

from collections.abc import Callable

from engine.core.log import vocabulary as v
from engine.core.log.state import ROOT
from visualizer.sources.hash_numbers import HashNumbers
from visualizer.sources.vllm_lines import Saved, Tokens, known_ids, rows_of


def saved_state(
    saved: Saved,
    numbers: HashNumbers,
    read: Callable[[int, Tokens], tuple[list[int], list[str]]],
    start: v.RunStarted,
) -> v.KeyframeState:
    """Return the state for a keyframe, whose nodes get their numbers from `numbers`.

    read   returns the ids and the texts of a request's tokens
    start  the beginning of the run, of which the state has the settings
    """
    size = start.settings["block_size"]
    nodes = _nodes(saved, numbers, size)
    requests: list[v.RequestState] = []
    for one in sorted(saved.requests, key=lambda one: one.request):
        prompt, texts = read(one.request, one.prompt)
        output, output_texts = read(one.request, one.output)
        tokens, texts = prompt + output, texts + output_texts
        path = [numbers.of(hash_, nodes) for hash_ in one.hashes[: one.stored]]
        for index, id_ in enumerate(path):
            part = slice(index * size, (index + 1) * size)
            nodes[id_].tokens, nodes[id_].texts = tokens[part], texts[part]
        requests.append(
            v.RequestState(
                id=one.request,
                root=one.request,
                sample=0,
                prompt_length=len(prompt),
                tokens=tokens,
                num_computed_tokens=one.computed,
                block_table=one.table,
                last_node=path[-1] if path else ROOT,
                num_seqs=1,
                preemptions=one.preemptions,
                texts=texts,
                label=one.id,
                priority=one.priority,
                max_tokens=one.max_tokens,
                sampling={},
                group_tables=[table for _, table in sorted(one.groups)],
            )
        )
    plans = {
        step: [
            v.ScheduledRow(row.request, row.start, row.count, known_ids(row.drafts))
            for row in rows_of(rows, step)
        ]
        for step, rows in saved.in_flight
    }
    cached = set(saved.cached)
    return v.KeyframeState(
        seq=0,
        step=saved.step,
        tick=0,
        paused=False,
        waiting=saved.waiting,
        running=saved.running,
        plan=plans.pop(saved.step, []),
        in_flight=list(plans.items()),
        free=[block for block in reversed(saved.free) if block not in cached],
        queue=[block for block in saved.free if block in cached],
        refs=[],  # the fold counts them
        requests=requests,
        nodes=[v.NodeRecord(ROOT, -1), *nodes.values()],
        holds=[],
        settings=start.settings,
        classes={},
        source=start.source,
        schema=v.KEYFRAME_SCHEMA_VERSION,
    )


def _nodes(saved: Saved, numbers: HashNumbers, size: int) -> dict[int, v.NodeRecord]:
    """Return the tree of cached blocks by number, without tokens; each block is after its parent.

    Raises ValueError if a block's parent is not cached.
    """
    parents = dict(zip(saved.hashes, saved.parents, strict=True))
    blocks: dict[str, list[int]] = {hash_: [] for hash_ in parents}
    for hash_, block in zip(saved.hashes, saved.cached, strict=True):
        blocks[hash_].append(block)
    below: dict[str, list[str]] = {}
    for hash_, parent in parents.items():
        below.setdefault(parent, []).append(hash_)
    nodes: dict[int, v.NodeRecord] = {}
    ready = [(hash_, ROOT) for hash_ in below.get("", [])]
    while ready:
        hash_, parent_id = ready.pop()
        id_, copies = numbers.of(hash_, nodes), blocks.pop(hash_)
        nodes[id_] = v.NodeRecord(
            id_, parent_id, [-1] * size, copies[:1], copies[1:], texts=[""] * size
        )
        ready += [(child, id_) for child in below.get(hash_, [])]
    if blocks:
        raise ValueError(f"{len(blocks)} cached blocks follow blocks that are not cached")
    return nodes
