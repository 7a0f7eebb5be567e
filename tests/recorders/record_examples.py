"""Record the examples: three runs of vLLM on a CPU with the bundled model, and their KV events.

    PYTHONPATH=recorders/vllm:notebooks VLLM_PYTHON -m tests.recorders.record_examples FOLDER

Three more recordings need no model, only vLLM's scheduler:

    async    asynchronous scheduling and preemptions, without token ids
    rotated  a recording in three files, of which the second and the third begin in the middle
    drafts   speculative decoding: two drafts per row

vLLM runs in this process, a step at a time, so that a request arrives before the same step each time.
Each run gives `vllm_NAME.jsonl.gz`, what `underglass_vllm` records with token ids, and
`vllm_NAME.kv_events.jsonl.gz`, the raw messages of vLLM's KV-event publisher, a JSON line each:
topic, sequence number, payload in base64.
"""

import argparse
import base64
import gzip
import json
import multiprocessing
import os
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from tests.parity.record_vllm import MODEL, QUIET, SchedulerFactory, run
from tests.parity.recorded_steps import recording_to
from tests.parity.workloads import GENERATORS
from tests.recorders.against_vllm import rotating, run_with_drafts

ENDPOINT, TOPIC = "tcp://127.0.0.1:5657", "kv"  # vLLM connects to it, so that the subscriber binds
SETTINGS = QUIET | {
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_DISABLE_REQUEST_ID_RANDOMIZATION": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "UNDERGLASS_RECORD_TOKENS": "1",
}
STORY = (
    "Once upon a time there was a kind fox who lived near a river. One day the fox found a big "
    "basket of cheese. The fox wanted to share it with a friend. "
)
NAMES = ("Ada", "Bo", "Cleo", "Dev", "Eva", "Finn", "Gus", "Hal", "Ivo", "Jun", "Kim", "Lea")
THINGS = ("a red boat", "an old tree", "a small bird", "the blue sea", "a warm cake", "a new ball")


class Ask(NamedTuple):
    """A request that arrives before a step."""

    step: int
    name: str
    prompt: str
    max_tokens: int


class Run(NamedTuple):
    """vLLM's limits, and who asks."""

    blocks: int
    seats: int
    budget: int
    asks: tuple[Ask, ...]


def _tale(index: int, sentences: int) -> str:
    """Return a beginning of its own: nothing of it is cached."""
    name, thing = NAMES[index % len(NAMES)], THINGS[index % len(THINGS)]
    return f"{name} had {thing}." + f" {name} liked {thing} very much." * sentences


RUNS = {
    # Memory and seats for all: nothing waits for long.
    "calm": Run(
        48,
        4,
        64,
        tuple(Ask(1 + 6 * i, NAMES[i], _tale(i, 2 + i % 4), 24 + 6 * i) for i in range(6)),
    ),
    # Memory for three of eight: requests wait, and the latest are preempted.
    "tight": Run(
        16,
        4,
        64,
        tuple(Ask(1 + 3 * i, NAMES[i], _tale(i, 6 + i % 5), 60 + 10 * (i % 3)) for i in range(9)),
    ),
    # One long beginning: computed once, then found, until others need its blocks.
    "shared_prefix": Run(
        20,
        4,
        96,
        (
            Ask(1, "Ada", STORY * 2 + "The fox met Milo.", 20),
            Ask(6, "Bo", STORY * 2 + "The fox met Mia.", 24),
            Ask(6, "Cleo", STORY * 2 + "A bird came.", 24),
            Ask(30, "Dev", STORY + "It began to rain.", 32),
            Ask(34, "Eva", _tale(4, 28), 48),
            Ask(36, "Finn", _tale(5, 28), 48),
            Ask(100, "Gus", STORY * 2 + "Then", 24),
            Ask(104, "Hal", STORY * 2 + "Then", 24),
        ),
    ),
}


WITHOUT_MODEL = {"async": ("async", 16), "rotated": ("serving", 32), "drafts": ("tight", 7)}
LINES_PER_FILE = 60


def record_scheduler(name: str, folder: Path) -> None:
    """Play one of `WITHOUT_MODEL` on vLLM's scheduler, and write its files."""
    os.environ |= QUIET
    factory, (stratum, seed) = SchedulerFactory(), WITHOUT_MODEL[name]
    workload = GENERATORS[stratum](seed)
    with TemporaryDirectory() as recorded:
        with recording_to(Path(recorded) / f"{name}.jsonl", tokens=name != "async"):
            scheduler = factory.scheduler(workload)
        if name == "rotated":
            rotating(scheduler._recorder, LINES_PER_FILE)
        (run_with_drafts if name == "drafts" else run)(factory, workload, scheduler, lambda: None)
        scheduler.shutdown()
        for file in Path(recorded).iterdir():
            packed = gzip.compress(file.read_bytes(), mtime=0)
            (folder / f"{file.name}.gz").write_bytes(packed)


def record(name: str, folder: Path) -> None:
    """Play one of `RUNS` on vLLM, and write its two files."""
    os.environ |= SETTINGS | {"UNDERGLASS_RECORD": str(folder / f"vllm_{name}.jsonl.gz")}
    import torch
    from vllm import EngineArgs, LLMEngine, SamplingParams
    from vllm.config import KVEventsConfig

    torch.set_num_threads(1)  # more threads may add up in another order
    listener = Listener()
    settings = RUNS[name]
    engine = LLMEngine.from_engine_args(
        EngineArgs(
            str(MODEL),
            dtype="float32",
            enforce_eager=True,
            max_model_len=512,
            max_num_batched_tokens=settings.budget,
            max_num_seqs=settings.seats,
            block_size=32,
            num_gpu_blocks_override=settings.blocks + 1,
            scheduler_cls="underglass_vllm.RecordingScheduler",
            kv_events_config=KVEventsConfig(
                enable_kv_cache_events=True, publisher="zmq", endpoint=ENDPOINT, topic=TOPIC
            ),
        )
    )
    asks, step = list(settings.asks), 0
    while asks or engine.has_unfinished_requests():
        step += 1
        while asks and asks[0].step <= step:
            ask = asks.pop(0)
            params = SamplingParams(max_tokens=ask.max_tokens, temperature=0.0, ignore_eos=True)
            engine.add_request(ask.name, ask.prompt, params)
        engine.step()
    engine.engine_core.shutdown()
    listener.save(folder / f"vllm_{name}.kv_events.jsonl.gz")


class Listener(threading.Thread):
    """Receives vLLM's KV events until none has come for a second after `save` was called."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        import zmq

        self._socket = zmq.Context.instance().socket(zmq.SUB)
        self._socket.bind(ENDPOINT)
        self._socket.setsockopt_string(zmq.SUBSCRIBE, TOPIC)
        self._messages: list[dict[str, Any]] = []
        self._ends = threading.Event()
        self.start()

    def run(self) -> None:
        """Receive."""
        while not self._ends.is_set() or self._socket.poll(1000):
            if self._socket.poll(100):
                topic, number, payload = self._socket.recv_multipart()
                self._messages.append(
                    {
                        "topic": topic.decode(),
                        "seq": int.from_bytes(number, "big"),
                        "payload": base64.b64encode(payload).decode(),
                    }
                )

    def save(self, path: Path) -> None:
        """Write the messages."""
        self._ends.set()
        self.join()
        lines = "".join(json.dumps(one) + "\n" for one in self._messages)
        path.write_bytes(gzip.compress(lines.encode(), mtime=0))


def main() -> None:
    """Record the runs that the command line names."""
    parser = argparse.ArgumentParser(description="Record vLLM with the bundled model.")
    parser.add_argument("folder", type=Path)
    names = [*RUNS, *WITHOUT_MODEL]
    parser.add_argument("--runs", nargs="*", default=names, choices=names)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.runs:  # a second vLLM in one process would find the first one's state
        process = multiprocessing.get_context("spawn").Process(
            target=record if name in RUNS else record_scheduler, args=(name, options.folder)
        )
        process.start()
        process.join()
        if process.exitcode:
            sys.exit(f"the run {name} failed")
    for file in sorted(options.folder.glob("*.gz")):
        print(f"{file}: {file.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main()
