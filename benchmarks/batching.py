"""Continuous against static batching, on the first lesson's workload.

Steps and tokens per step are counted and do not depend on the machine; throughput is the median over
interleaved pairs, as a ratio.
"""

from benchmarks.pairs import compare
from benchmarks.report import panels, save
from benchmarks.workload import Bench


def main() -> None:
    """Print counts for both and the ratio of their speeds."""
    kinds = {kind: Bench(batching=kind) for kind in ("continuous", "static")}
    plot, (axes,) = panels(["Running requests, step by step"], "step", "requests in the step")
    counted: dict[str, object] = {}
    for kind, bench in kinds.items():
        log = bench.run().log
        steps, requests = log.steps, log.requests
        counted[kind] = {
            "steps": len(steps),
            "output_tokens_per_step": float(steps.sampled_tokens.sum() / len(steps)),
            "mean_first_token_step": float(requests.first_token_step.mean()),
            "mean_ttft_ms": float(requests.ttft_ms.mean()),
        }
        axes.step(steps.index, steps.batch, where="mid", label=kind)
        print(
            f"{kind:>10}: {len(steps)} steps, {steps.sampled_tokens.sum() / len(steps):.2f} output "
            f"tokens per step, mean first token at step {requests.first_token_step.mean():.1f}, "
            f"mean TTFT {requests.ttft_ms.mean():.0f} ms"
        )
    ratio = compare("batching", kinds["continuous"].run, kinds["static"].run)
    print(f"continuous over static, throughput: {ratio}")
    counted["throughput_continuous_over_static"] = ratio.figures()
    axes.set_ylim(0)
    axes.legend()
    save("batching", counted, plot)
