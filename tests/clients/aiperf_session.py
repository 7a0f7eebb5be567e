"""aiperf: NVIDIA's load generator, end to end, and what its report says."""

import sys
from pathlib import Path

from tests.clients.checks import MODEL, Servers, Session, reported, same

session = Session("aiperf")


def profile(servers: Servers, *options: str) -> None:
    """Send 20 requests of 64 prompt and 16 output tokens, 4 at a time; check the report."""
    report = reported(
        lambda report: [
            *(Path(sys.executable).parent / "aiperf", "profile", "--model", "bundled"),
            *("--url", servers.url, "--tokenizer", MODEL, "--artifact-dir", report.parent),
            *("--concurrency", "4", "--request-count", "20", "--streaming", "--ui", "none"),
            *("--synthetic-input-tokens-mean", "64", "--output-tokens-mean", "16"),
            *("--extra-inputs", "ignore_eos:true", *options),
        ],
        "profile_export_aiperf.json",
    )
    same(report["request_count"]["avg"], 20)
    same(report.get("error_request_count", {"avg": 0})["avg"], 0)
    first = report["time_to_first_token"]["avg"]
    per_second = report["output_token_throughput"]["avg"]
    kind = "completions" if "completions" in options else "chat"
    print(f"# aiperf, {kind}: TTFT {first:.0f} ms, {per_second:.0f} output tokens/s", flush=True)


session.loads(
    profile,
    chat=("--endpoint-type", "chat"),
    completions=("--endpoint-type", "completions"),
    usage_in_each_chunk=(
        *("--endpoint-type", "chat", "--use-server-token-count", "--per-chunk-usage"),
    ),
)
