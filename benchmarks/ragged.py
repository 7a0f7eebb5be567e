"""64 ragged requests that arrive over time and share a system prompt: a realistic serving load.

The engine computes the system prompt once, admits and finishes requests in any step and never waits
for the longest of a batch. transformers offers two ways: `generate` on batches of arrived requests,
and continuous batching with pages and prefix sharing. The aim is 5 times the better of the two. A
third is measured as well: `generate` whose caller computes the system prompt once, keeps its
cache and copies it for each batch. `generate` runs with what wins in `benchmarks.others`; batches of
at most 8, 16, 32 or 64 cost it within a tenth the same processor time.
"""

import statistics
from collections.abc import Callable
from dataclasses import replace

from benchmarks.agreement import agreement
from benchmarks.arrivals import Arrival, Driver, Served, ragged, with_engine, with_generate
from benchmarks.arrivals import with_generate_batch as paged
from benchmarks.pairs import Ratio, in_turns, quickest, ratio
from benchmarks.report import bars, panels, save
from benchmarks.transformers_systems import load
from benchmarks.underglass import Underglass

REQUESTS, SHARED, BATCH = 64, 512, 32
GAP = 0.015  # seconds, in the mean: faster than any of the systems serves
ROUNDS = 5
AIM = 5.0


def main() -> None:
    """Measure, print and save."""
    ours = Underglass(token_budget=512, max_batch_size=BATCH, max_kv_tokens=BATCH * 704)
    arrivals = ragged(ours.tokenizer, REQUESTS, SHARED, GAP)
    output = sum(one.output for one in arrivals)
    print(
        f"{REQUESTS} requests, {SHARED} shared + 16 to 64 own tokens, 16 to 96 output tokens ("
        f"{output} in all), greedy; arriving within {arrivals[-1].at:.2f} s, at most {BATCH} at once"
    )
    generate = f"static batches, sdpa, dynamic cache, fp32, 1 thread, at most {BATCH}"
    candidates = {
        f"sdpa, {blocks} pages of {page} shared by prefix, max_batch_tokens={tokens}": paged(
            page_size=page,
            num_blocks=blocks,
            max_batch_tokens=tokens,
            max_requests_per_batch=BATCH,
        )
        for page, blocks in ((256, 128), (32, 1024))
        for tokens in (512, 2048)
    }
    first = [replace(one, at=0.0) for one in arrivals[: REQUESTS // 4]]
    best, _ = quickest({name: _serving(one, first) for name, one in candidates.items()}, tries=1)
    systems = {
        "engine": (ours.settings, with_engine(ours)),
        "transformers generate": (generate, with_generate(BATCH, 0)),
        "transformers continuous": (f"{best}, fp32, 1 thread", candidates[best]),
        "generate, prefix kept by hand": (generate, with_generate(BATCH, SHARED)),
    }
    for name, (settings, driver) in systems.items():
        print(f"{name}: {settings}")
        driver(first)  # warm

    served: dict[str, list[Served]] = {name: [] for name in systems}
    in_turns(
        "ragged",
        {name: _serving(one, arrivals, served[name]) for name, (_, one) in systems.items()},
        ROUNDS,
    )
    judge = load("sdpa")
    prompts = [one.prompt for one in arrivals]
    figures: dict[str, object] = {"aim": AIM, "last_arrival": arrivals[-1].at}
    over: dict[str, Ratio] = {}
    seconds, waits = {}, {}
    for name, runs in served.items():
        seconds[name] = statistics.median(run.seconds for run in runs)
        waits[name] = statistics.median(statistics.mean(run.ttft) for run in runs)
        over[name] = ratio([r.seconds for r in served["engine"]], [r.seconds for r in runs])
        equal = agreement(judge, prompts, served["engine"][0].tokens, runs[0].tokens).require(name)
        figures[name] = {
            "settings": systems[name][0],
            "seconds": seconds[name],
            "tokens_per_second": output / seconds[name],
            "mean_ttft_seconds": waits[name],
            "engine_over_it": over[name].figures(),
            "agreement": equal.figures(),
        }
        print(
            f"{name:30} {seconds[name]:6.2f} s  {output / seconds[name]:6,.0f} tok/s  mean TTFT "
            f"{waits[name]:5.2f} s"
            + (f"   engine over it {over[name]}; {equal}" if name != "engine" else ""),
            flush=True,
        )
    better = min(("transformers generate", "transformers continuous"), key=seconds.__getitem__)
    print(f"engine over the better of transformers' two ({better}): {over[better]}, aim {AIM}")
    plot, columns = panels(["All done after", "Mean time to first token"], "seconds")
    bars(columns[0], seconds, digits=1)
    bars(columns[1], waits, digits=2)
    save("ragged", figures, plot)


def _serving(
    driver: Driver, arrivals: list[Arrival], into: list[Served] | None = None
) -> Callable[[], None]:
    def work() -> None:
        served = driver(arrivals)
        if into is not None:
            into.append(served)

    return work
