"""Record a whole vLLM: its decisions and its tokens, on a CPU with the bundled model.

    make record-vllm-run VLLM_PYTHON=/tmp/vllm/bin/python         # a few minutes

`record_vllm.py` says how to install vLLM. Two runs, each in a process of its own:

    warm  rounds of prompts that continue one story, so that each round finds the last one's blocks
    cold  nothing is cached, and long prompts with one beginning arrive together

vLLM runs with `--scheduler-cls`, a supported flag, and `recorders/vllm/underglass_vllm.py`. Memory
is small enough for preemptions. Asynchronous scheduling is off on a CPU, and attention there wants
blocks of a multiple of 32 tokens.
"""

import argparse
import multiprocessing
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from engine.core.log.vocabulary import RequestArrived, StepFinished, StepStarted
from parity.records import Ask, Recording, Workload
from tests.parity import FIXTURES
from tests.parity.record_vllm import MODEL, QUIET, installed
from tests.parity.recorded_steps import read_recording, recording_to, steps_of
from tests.parity.writing import write

NUM_BLOCKS, BLOCK_SIZE, TOKEN_BUDGET, SEATS = 16, 32, 64, 4
MAX_TOKENS = 120
STORY = (
    "Once upon a time there was a kind fox who lived near a river. One day the fox found a big "
    "basket of cheese. The fox wanted to share it with a friend. "
)
LONG = STORY + "The fox met Milo. The fox met Mia. A bird came. It began to rain. " * 3
ENDINGS = ("The fox met Milo.", "The fox met Mia.", "A bird came.", "It began to rain.", "Then")
DOG = "The dog lived in a big garden. "
RUNS = {  # rounds of prompts; a round begins when the last one has finished
    "warm": [[STORY + "Then"], [STORY + one for one in ENDINGS], [DOG * 12, STORY + "But"]],
    "cold": [
        [
            *(LONG + one for one in ("The end.", "Then", "But")),
            *(DOG * count for count in (9, 14, 20, 5)),
            LONG + "So",
        ],
        [LONG + "And then", STORY + "Then"],
    ],
}


def record(name: str) -> Recording:
    """Play one of `RUNS` on vLLM."""
    os.environ |= QUIET | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1"}
    import torch
    from vllm import LLM, SamplingParams

    torch.set_num_threads(1)  # more threads may add up in another order
    with TemporaryDirectory() as folder, recording_to(Path(folder) / "run.jsonl") as file:
        llm = LLM(
            str(MODEL),
            dtype="float32",
            enforce_eager=True,
            max_model_len=512,
            max_num_batched_tokens=TOKEN_BUDGET,
            max_num_seqs=SEATS,
            block_size=BLOCK_SIZE,
            num_gpu_blocks_override=NUM_BLOCKS + 1,
            scheduler_cls="underglass_vllm.RecordingScheduler",
        )
        params = SamplingParams(max_tokens=MAX_TOKENS, temperature=0.0, ignore_eos=True)
        for prompts in RUNS[name]:
            llm.generate(prompts, params, use_tqdm=False)
        llm.llm_engine.engine_core.shutdown()
        log = read_recording(file)
    asks, step = dict[int, Ask](), 0
    for event in log:
        match event:
            case StepStarted():
                step = event.step
            case RequestArrived():
                asks[event.request] = Ask(step + 1, event.prompt, [], MAX_TOKENS)
            case StepFinished():
                for row in event.tokens:
                    asks[row.request].output += row.ids
    workload = Workload(
        name,
        "bundled model",
        TOKEN_BUDGET,
        SEATS,
        NUM_BLOCKS,
        BLOCK_SIZE,
        requests=list(asks.values()),
    )
    return Recording(workload, steps_of(log))


def main() -> None:
    parser = argparse.ArgumentParser(description="Record a whole vLLM with the bundled model.")
    parser.add_argument("--out", type=Path, default=FIXTURES / "vllm_run.jsonl.gz")
    options = parser.parse_args()
    name, number = installed()
    recordings = []
    for run in RUNS:  # a second vLLM in one process would find the first one's state
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            recordings.append(pool.apply(record, (run,)))
    write(options.out, {"engine": name, "version": number, "model": "bundled"}, recordings)
    for workload, steps in recordings:
        preempted = sum(len(step.preempted) for step in steps)
        print(f"{workload.name}: {len(steps)} steps, {preempted} preemptions")
    print(f"{options.out}, {options.out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
