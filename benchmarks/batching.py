"""Continuous against static batching, on the first lesson's workload.

Steps and tokens per step are counted and do not depend on the machine; throughput is the median over
interleaved pairs, as a ratio.
"""

from benchmarks.pairs import compare
from benchmarks.report import panels, save
from benchmarks.workload import Bench
from visualizer import read


def main() -> None:
    """Print counts for both and the ratio of their speeds."""
    kinds = {kind: Bench(batching=kind) for kind in ("continuous", "static")}
    plot, columns = panels(list(kinds), "step", "requests in the step")
    counted: dict[str, object] = {}
    for axes, (kind, bench) in zip(columns, kinds.items(), strict=True):
        log = bench.run().log
        steps, requests = read(log).steps, read(log).requests
        counted[kind] = {
            "steps": len(steps),
            "output_tokens_per_step": float(steps.sampled_tokens.sum() / len(steps)),
            "mean_first_token_step": float(requests.first_token_step.mean()),
            "mean_ttft_ms": float(requests.ttft_ms.mean()),
        }
        axes.fill_between(steps.index, steps.batch, step="mid")
        print(
            f"{kind:>10}: {len(steps)} steps, {steps.sampled_tokens.sum() / len(steps):.2f} output "
            f"tokens per step, mean first token at step {requests.first_token_step.mean():.1f}, "
            f"mean TTFT {requests.ttft_ms.mean():.0f} ms"
        )
    ratio = compare("batching", kinds["continuous"].run, kinds["static"].run)
    print(f"continuous over static, throughput: {ratio}")
    counted["throughput_continuous_over_static"] = ratio.figures()
    for axes in columns:
        axes.set(xlim=(0, max(one.dataLim.xmax for one in columns)), ylim=(0, 4.4), yticks=range(5))
    save("batching", counted, plot)
