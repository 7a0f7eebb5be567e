"""Record what SGLang publishes: KV events of its `RadixCache`, and forward-pass metrics.

    python -m pip install --no-deps --target /tmp/sglang sglang==0.5.23
    make record-sglang-events SGLANG=/tmp/sglang                  # seconds

The bytes are those of SGLang's own classes. The cache's events are what `RadixCache` did for one drawn
history; a few for host memory follow, because only the hierarchical cache has that and it needs a GPU.
The metrics are the counts of a run of this project's engine: SGLang's scheduler needs a GPU, too.
"""

import argparse
import gzip
import hashlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from engine.core.log import EventLog
from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from tests.parity.record_sglang import import_sglang, played
from visualizer.sources.frames import write_frame

FIXTURES = Path("tests/fixtures")
RUN = Path("visualizer/scenarios/overload.jsonl.gz")
PAGE = 4
HISTORIES = 12
START = 1_795_300_000.0  # seconds since 1970
RANK = 0


def load(folder: Path, name: str) -> ModuleType:
    """Import one module of SGLang without its package, which a stand-in replaces."""
    file = folder / Path(*name.split(".")).with_suffix(".py")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec and spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page_hashes(key: Any, prior: bytes | None, page: int) -> list[str]:
    """Stand for SGLang's compiled hash: SHA-256 over the hash before and 4 bytes for each token."""
    hashes, digest, tokens = [], prior or b"", list(key.raw_token_ids())[: len(key)]
    for start in range(0, len(tokens), page):
        content = b"".join(token.to_bytes(4, "little") for token in tokens[start : start + page])
        digest = hashlib.sha256(digest + content).digest()
        hashes.append(digest.hex())
    return hashes


def kv_batches(events: Any) -> Iterator[Any]:
    """Yield the batches of one cache after the other; each is cleared at its end."""
    at = START
    for seed in range(HISTORIES):
        for _, cache in played("overlapping, chunked", seed, PAGE, enable_kv_cache_events=True):
            at += 0.02
            if changes := cache._cache.take_events():
                yield events.KVEventBatch(ts=at, events=changes, attn_dp_rank=RANK)
        stored = list(host_memory(events))
        if seed == 0:
            yield events.KVEventBatch(ts=at + 0.01, events=stored, attn_dp_rank=RANK)
        cache._cache.reset()
        at += 1
        yield events.KVEventBatch(ts=at, events=cache._cache.take_events(), attn_dp_rank=RANK)


def host_memory(events: Any) -> Iterator[Any]:
    """Yield the events of two pages that move to host memory."""
    pages = [list(range(97, 101)), list(range(101, 105))]
    gpu, cpu = events.StorageMedium.GPU, events.StorageMedium.CPU
    above = None
    for number, page in zip(
        (-7_000_000_000_000_000_001, 7_000_000_000_000_000_002), pages, strict=True
    ):
        for medium in (gpu, cpu):
            yield events.BlockStored([number], above, page, PAGE, None, medium)
        above = number
    yield events.BlockRemoved([above], gpu)


def metrics(fpm: Any) -> Iterator[Any]:
    """Yield the metrics of each step of a run of this project's engine."""
    log = EventLog.from_bytes(gzip.decompress(RUN.read_bytes()))
    state = State()
    for event in log:
        state.apply(event)
        if isinstance(event, v.StepScheduled):
            yield fpm.ForwardPassMetrics(
                worker_id="worker",
                dp_rank=RANK,
                wall_time=0.004 + 0.0001 * sum(row.count for row in event.rows),
                scheduled_requests=scheduled(fpm, event.rows, state),
                queued_requests=queued(fpm, state),
            )
    yield fpm.ForwardPassMetrics(worker_id="worker", dp_rank=RANK)  # a heartbeat


def scheduled(fpm: Any, rows: list[v.ScheduledRow], state: State) -> Any:
    """Return the counts of a step's requests."""
    lengths, decodes, tokens, before = (
        fpm.WelfordAccumulator(), fpm.WelfordAccumulator(), 0, 0,
    )  # fmt: skip
    for row in rows:
        request = state.requests[row.request]
        if row.start + row.count < len(request.tokens) or row.count > 1:
            lengths.add(request.prompt_length)
            tokens += row.count
            before += row.start
        else:
            decodes.add(len(request.tokens))
    return fpm.ScheduledRequestMetrics(
        lengths.count, tokens, lengths.variance(), before,
        decodes.count, decodes.total, decodes.variance(),
    )  # fmt: skip


def queued(fpm: Any, state: State) -> Any:
    """Return the counts of the queue."""
    new, old = fpm.WelfordAccumulator(), fpm.WelfordAccumulator()
    for waiting in state.waiting:
        request = state.requests[waiting]
        if len(request.tokens) > request.prompt_length:
            old.add(len(request.tokens))
        else:
            new.add(request.prompt_length)
    return fpm.QueuedRequestMetrics(
        new.count, new.total, new.variance(), old.count, old.total, old.variance()
    )


def save(name: str, lines: list[bytes], version: str) -> None:
    """Write a capture without a time in its header, so that the same lines give the same file."""
    path = FIXTURES / name
    path.write_bytes(gzip.compress(b"".join(line + b"\n" for line in lines), mtime=0))
    print(f"sglang {version}: {len(lines)} messages, {path}, {path.stat().st_size / 1e3:.1f} kB")


def main() -> None:
    parser = argparse.ArgumentParser(description="Record what SGLang publishes.")
    parser.add_argument("--sglang", type=Path, required=True, help="folder with the sglang package")
    folder = parser.parse_args().sglang
    version = import_sglang(folder)
    events = load(folder, "sglang.srt.disaggregation.kv_events")
    from sglang.srt.mem_cache import utils

    utils.get_native_hash = page_hashes
    fpm = load(folder, "sglang.srt.observability.forward_pass_metrics")
    encode = msgspec.msgpack.Encoder().encode
    lines = [
        write_frame(b"", number, encode(batch), batch.ts)
        for number, batch in enumerate(kv_batches(events))
    ]
    save("sglang_kv_events.jsonl.gz", lines, version)
    lines, at = [], START
    for number, one in enumerate(metrics(fpm)):
        at += one.wall_time + 0.001
        message = fpm.encode(msgspec.structs.replace(one, counter_id=number))
        lines.append(write_frame(b"", number, message, at))
    save("sglang_forward_pass.jsonl.gz", lines, version)


if __name__ == "__main__":
    main()
