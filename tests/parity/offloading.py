"""What a host tier with "write_through" is asked, and what vLLM's offloading manager answers.

`operations` plays a random workload on this project's engine and notes each question to its host tier
with the answer:

    store   a request's computed blocks are offered: which are new, and which leave to make room?
    find    how many of these blocks, from the first on, are there? They are loaded.
    finish  a request ends, which makes its blocks the most recently used

`python -m tests.parity.offloading FILE` asks vLLM's `CPUOffloadingManager` the same questions; it needs
vLLM, but no GPU. Blocks are numbered in the order in which they are first offered; the number before
a list of blocks is the place of the first one in its request's prompt.
"""

import gzip
import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from engine import EventLog
from engine.extensions.tier_down import Down
from engine.extensions.tier_up import Up
from engine.extensions.tiers import Tiers
from tests.engine.workloads import make_engine, play, tiered_workload

SEEDS = range(150)
Operation = list[Any]


def operations(seed: int) -> tuple[int, list[Operation]] | None:
    """Return the size of the host tier and what it was asked; None if the workload has none."""
    workload = tiered_workload(seed)
    config = workload.config.changed(
        disk_kv_tokens=0, kv_write="write_through", watermark=0.0, long_prefill_token_threshold=0
    )
    if not config.host_kv_tokens:
        return None
    workload.config = config
    names: dict[bytes, int] = {}
    asked: list[Operation] = []
    store, load, finished = Down.store, Up._load, Tiers.finished

    def name(keys: Any) -> list[int]:
        return [names.setdefault(key, len(names)) for key in keys]

    def storing(self: Down, tier: Any, keys: list[bytes], *args: Any, **more: Any) -> int:
        before = list(tier.blocks)
        count = store(self, tier, keys, *args, **more)
        if tier.name == "host":
            new = [key for key in tier.blocks if key not in set(before)]
            gone = [key for key in before if key not in tier.blocks]
            request = more["request"]
            first = engine.tiers._keys._chains[request].index(keys[0])
            asked.append(["store", request, first, name(keys), name(new), name(gone)])
        return count

    def loading(self: Up, keys: list[bytes], request: int) -> Any:
        first = self._keys._chains[request].index(keys[0])
        asked.append(["find", request, first, name(keys), len(keys)])
        return load(self, keys, request)

    def finishing(self: Tiers, request: Any) -> None:
        asked.append(["finish", request.id])
        finished(self, request)

    engine = make_engine(workload, EventLog())
    with (
        mock.patch.object(Down, "store", storing),
        mock.patch.object(Up, "_load", loading),
        mock.patch.object(Tiers, "finished", finishing),
    ):
        play(engine, workload)
    return config.host_kv_tokens // config.block_size, asked


def of_vllm(limit: int, asked: list[Operation]) -> list[Operation]:
    """Return the same operations with the answers of vLLM."""
    from vllm.v1.kv_offload.base import (  # type: ignore[import-not-found]
        LookupResult,
        ReqContext,
        make_offload_key,
    )
    from vllm.v1.kv_offload.cpu.manager import (  # type: ignore[import-not-found]
        CPUOffloadingManager,
    )

    manager = CPUOffloadingManager(limit)
    contexts: dict[int, Any] = {}
    answered: list[Operation] = []

    def key(block: int) -> Any:
        return make_offload_key(block.to_bytes(8, "big"), 0)

    numbers = {key(block): block for block in range(4096)}
    for kind, request, *rest in asked:
        context = contexts.setdefault(request, ReqContext(str(request)))
        if kind == "finish":
            manager.on_request_finished(context)
            del contexts[request]
            answered.append([kind, request])
            continue
        first, blocks = rest[:2]
        keys = [key(block) for block in blocks]
        for position, one in enumerate(keys, start=first):
            context.set_offload_key_position(one, position)
        if kind == "store":
            output = manager.prepare_store(keys, context)
            new = gone = []
            if output is not None:
                new = [numbers[one] for one in output.keys_to_store]
                gone = [numbers[one] for one in output.evicted_keys]
                manager.complete_store(output.keys_to_store, context)
            answered.append([kind, request, first, blocks, new, gone])
        else:
            found = 0
            while found < len(keys) and manager.lookup(keys[found], context) is LookupResult.HIT:
                found += 1
            manager.prepare_load(keys[:found], context)
            manager.complete_load(keys[:found], context)
            answered.append([kind, request, first, blocks, found])
    return answered


def main(path: Path) -> None:
    """Write what vLLM answers."""
    recorded = {}
    for seed in SEEDS:
        if (played := operations(seed)) is not None:
            recorded[seed] = of_vllm(*played)
    text = json.dumps(recorded, separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(text, mtime=0))
    print(f"{len(recorded)} workloads, {sum(map(len, recorded.values()))} operations, {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
