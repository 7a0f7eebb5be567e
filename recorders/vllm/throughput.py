"""Measure what recording costs a whole vLLM with the bundled model, on a CPU.

    PYTHONPATH=.:recorders/vllm:notebooks VLLM_PYTHON recorders/vllm/throughput.py      # from the root

One engine generates rounds of equal requests. In every second round its recorder is put aside, so
that each recorded round has a neighbour without; their order alternates. Prints tokens per second of
both, and the median of the pairs' ratios.
"""

import argparse
import os
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.parity.record_vllm import MODEL, QUIET
from tests.parity.recorded_steps import recording_to

TOKENS = 24  # per request


def main() -> None:
    """Measure each batch size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 32, 128])
    options = parser.parse_args()
    os.environ |= QUIET | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1"}
    import torch
    from vllm import LLM, SamplingParams

    torch.set_num_threads(1)
    with TemporaryDirectory() as folder, recording_to(Path(folder) / "run.jsonl.gz", tokens=False):
        llm = LLM(
            str(MODEL),
            dtype="float32",
            enforce_eager=True,
            max_model_len=512,
            max_num_seqs=128,
            block_size=32,
            scheduler_cls="underglass_vllm.RecordingScheduler",
        )
        scheduler = llm.llm_engine.engine_core.engine_core.scheduler
        recorder = scheduler._recorder
        params = SamplingParams(max_tokens=TOKENS, temperature=0.0, ignore_eos=True)
        print(" batch   plain tokens/s   recorded tokens/s   recorded / plain")
        for batch in options.batches:
            prompts = [f"Once upon a time {number} foxes lived." for number in range(batch)]
            llm.generate(prompts, params, use_tqdm=False)  # fills the prefix cache
            rates: dict[bool, list[float]] = {False: [], True: []}
            for pair in range(options.pairs):
                for recorded in (pair % 2 == 0, pair % 2 == 1):
                    scheduler._recorder = recorder if recorded else None
                    begin = time.perf_counter()
                    llm.generate(prompts, params, use_tqdm=False)
                    rates[recorded].append(batch * TOKENS / (time.perf_counter() - begin))
                    assert scheduler._recorder is not None or not recorded, "it has stopped"
            ratios = [ours / plain for plain, ours in zip(*rates.values(), strict=True)]
            plain, ours = (statistics.median(rates[one]) for one in (False, True))
            print(
                f"{batch:6}{plain:17.0f}{ours:20.0f}{statistics.median(ratios):19.3f}", flush=True
            )


if __name__ == "__main__":
    main()
