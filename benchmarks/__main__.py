"""python -m benchmarks [FIGURE [OPTIONS]]: measure one figure, or all of them with their defaults."""

import sys
import time
from importlib import import_module

import typer

from benchmarks.llama_cpp_library import NoLlamaCppError
from engine.core.extras import MissingExtraError, needs_extra
from server.process import ServerError

# Figure -> what it shows. `main` in `benchmarks.FIGURE` measures, prints and saves it.
FIGURES = {
    "speed": "decode at batch 1, 8 and 32, decisions at 32 and 128; also against another checkout",
    "sizes": "models of 0.5B and 1.5B against transformers and llama.cpp, and a long context",
    "logits": "GGUF files of six types: logits against llama.cpp's and the float model's",
    "devices": "one model on eight devices, simulated: what fits, a step, tokens per second, TTFT",
    "kv": "KV in int8 against the model's precision: perplexity, tokens, answers",
    "loading": "memory and time to load each type of file, against its size",
    "routing": "every router on nine workloads, simulated and served; a decision; 100 replicas",
    "board": "the board in a browser at 10,000, 100,000 and 1,000,000 events",
    "load": "a server under load: many streams, overload, clients that leave or read slowly",
    "chaos": "faults at random times under traffic on three replicas, and what must hold after them",
}


def main() -> None:
    """Run the figure named on the command line with its options, or all figures."""
    name, *options = sys.argv[1:] or [""]
    if name in ("-h", "--help"):
        print("python -m benchmarks [FIGURE [OPTIONS]]: measure a figure, or all of them\n")
        print("\n".join(f"  {figure:8} {shows}" for figure, shows in FIGURES.items()))
        print("\nFIGURE --help lists its options. Results are also saved in build/benchmarks.")
        return
    if name and name not in FIGURES:
        sys.exit(f"unknown figure: {name}; there are {', '.join(FIGURES)}")
    for figure in [name] if name else FIGURES:
        print(f"\n{figure}: {FIGURES[figure]}", flush=True)
        start = time.perf_counter()
        program = f"python -m benchmarks {figure}"
        app = typer.Typer(
            add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
        )
        try:
            with needs_extra(program):
                app.command()(import_module(f"benchmarks.{figure}").main)
                app(options, prog_name=program, standalone_mode=bool(name))
        except (MissingExtraError, ServerError, NoLlamaCppError) as error:
            if name:
                sys.exit(str(error))
            print(error)
        print(f"({time.perf_counter() - start:.0f} s)")


if __name__ == "__main__":
    main()
