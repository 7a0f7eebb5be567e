"""guidellm: vLLM's load generator, end to end, and what its report says."""

import sys
from pathlib import Path

from tests.clients.checks import MODEL, Servers, Session, reported, same

session = Session("guidellm")


def benchmark(servers: Servers, kind: str, request_format: str) -> None:
    """Send 20 requests of 64 prompt and 16 output tokens, 4 at a time; check the report."""
    backend = f"kind=openai_http,target={servers.url},request_format={request_format}"
    (found,) = reported(
        lambda report: [
            *(Path(sys.executable).parent / "guidellm", "run", "--disable-console"),
            *("--backend", backend, "--profile", "kind=concurrent,streams=4"),
            *("--constraint", "kind=max_requests,count=20"),
            *("--tokenizer", f"kind=hf_auto,model={MODEL}"),
            *("--data", "kind=synthetic_text,prompt_tokens=64,output_tokens=16"),
            *("--output", f"kind=json,path={report}"),
        ],
        HF_HUB_OFFLINE="1",
    )["benchmarks"]
    totals = found["metrics"]["request_totals"]
    same((totals["successful"], totals["errored"]), (20, 0))
    tokens = found["metrics"]["output_token_count"]["successful"]
    same((tokens["min"], tokens["max"]), (16, 16))
    first = found["metrics"]["time_to_first_token_ms"]["successful"]["median"]
    per_second = found["metrics"]["output_tokens_per_second"]["successful"]["mean"]
    print(f"# guidellm, {kind}: TTFT {first:.0f} ms, {per_second:.0f} output tokens/s", flush=True)


session.loads(
    benchmark, chat=("chat", "/v1/chat/completions"), completions=("completions", "/v1/completions")
)
