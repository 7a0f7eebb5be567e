"""SGLang's benchmark, end to end, and what its report says."""

import sys

from tests.clients.checks import MODEL, Servers, Session, reported, same

session = Session("sglang")


def benchmark(servers: Servers, backend: str, *options: str) -> None:
    """Send 20 requests of 64 prompt and 16 output tokens, 4 at a time; check the report."""
    found = reported(
        lambda report: [
            *(sys.executable, "-m", "sglang.benchmark.serving", "--backend", backend),
            *("--base-url", servers.url, "--model", "bundled", "--tokenizer", MODEL),
            *("--dataset-name", "random-ids", "--num-prompts", "20", "--max-concurrency", "4"),
            *("--random-input-len", "64", "--random-output-len", "16"),
            *("--random-range-ratio", "1", "--output-file", report, *options, "--output-details"),
        ],
        HF_HUB_OFFLINE="1",
    )
    same((found["completed"], found["errors"]), (20, [""] * 20))
    same(found["output_lens"], [16] * 20)
    first, per_second = found["mean_ttft_ms"], found["output_throughput"]
    print(f"# sglang, {backend}: TTFT {first:.0f} ms, {per_second:.0f} output tokens/s", flush=True)


session.loads(
    benchmark,
    chat=("sglang-oai-chat",),
    completions=("sglang-oai",),
    not_streamed=("sglang-oai", "--disable-stream"),
)
