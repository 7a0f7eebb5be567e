"""Run all figures, one after the other, or only those named on the command line."""

import importlib
import importlib.util
import sys
import time

# Figure -> what it shows. `benchmarks.FIGURE` holds it and its `main()` measures, prints and saves.
FIGURES = {
    "batching": "continuous over static batching: steps, throughput, time to first token",
    "parity": "greedy tokens of every family in every situation, against transformers",
    "others": "the engine against transformers and llama.cpp, batch 1, 8 and 32",
    "sizes": "0.6B and 1.5B shapes against transformers and llama.cpp; long contexts",
    "bare": "the engine against a loop that only decodes: what serving costs",
    "steps": "where the time of a decode step goes, batch 1, 8 and 32",
    "ragged": "64 requests arriving over time with one system prompt, against transformers",
    "recording": "the engine with its event log over the engine without one",
    "speculation": "prompt lookup: steps and throughput with drafts over without",
    "draft_models": "draft models: acceptance, steps and throughput with drafts over without",
    "structured": "1,000 random schemas; the cost of a mask; plain rows beside structured ones",
    "scheduling": "a step's decisions with 100 and 10,000 waiting; radix costs per token",
    "prefix_hit": "time to first token of a cached prompt over a cold one",
    "moving": "prefill on one replica, decode on another: tokens, time per move, decisions",
    "simulation": "the simulation against the engine; 100,000 requests; the size of a log",
    "routing": "routers, simulated: hits, TTFT, the cost of a decision, 100 replicas",
    "board": "the board in a browser at 10,000, 100,000 and 1,000,000 events",
    "loading": "memory and time to load each type of file, against its size",
    "memory": "resident memory and blocks in a soak of 20,000 requests",
}


def main() -> None:
    """Run the figures named on the command line, or all."""
    names = sys.argv[1:] or list(FIGURES)
    if {"-h", "--help"} & set(names):
        print("python -m benchmarks [FIGURE ...]: measure these figures, or all\n")
        print("\n".join(f"  {name:13} {shows}" for name, shows in FIGURES.items()))
        return
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        sys.exit(f"unknown figure: {', '.join(unknown)}; there are {', '.join(FIGURES)}")
    if importlib.util.find_spec("matplotlib") is None:
        sys.exit("the plots need matplotlib: run `make bench`, which installs it")
    for name in names:
        print(f"\n{name}: {FIGURES[name]}", flush=True)
        start = time.perf_counter()
        importlib.import_module(f"benchmarks.{name}").main()
        print(f"({time.perf_counter() - start:.0f} s)")


if __name__ == "__main__":
    main()
