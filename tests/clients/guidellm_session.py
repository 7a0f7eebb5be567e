"""guidellm: vLLM's load generator, end to end, and what its report says."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.clients.checks import Servers, Session, same

session = Session("guidellm")
MODEL = Path(__file__).parents[2] / "engine" / "bundled"


def benchmark(servers: Servers, request_format: str) -> dict[str, Any]:
    """Run 20 requests of 64 prompt and 16 output tokens, 4 at a time; return the benchmark's report."""
    backend = f"kind=openai_http,target={servers.url},request_format={request_format}"
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        arguments = {
            "backend": backend,
            "profile": "kind=concurrent,streams=4",
            "constraint": "kind=max_requests,count=20",
            "tokenizer": f"kind=hf_auto,model={MODEL}",
            "data": "kind=synthetic_text,prompt_tokens=64,output_tokens=16",
            "output": f"kind=json,path={report}",
        }
        done = subprocess.run(
            [
                Path(sys.executable).parent / "guidellm",
                "run",
                "--disable-console",
                *(part for name, value in arguments.items() for part in (f"--{name}", value)),
            ],
            env=os.environ | {"HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        (found,) = json.loads(report.read_text())["benchmarks"]
    return found


def check(found: dict[str, Any], kind: str) -> None:
    """All 20 requests succeeded, and guidellm counted the tokens that it asked for."""
    totals = found["metrics"]["request_totals"]
    same((totals["successful"], totals["errored"]), (20, 0))
    tokens = found["metrics"]["output_token_count"]["successful"]
    same((tokens["min"], tokens["max"]), (16, 16))
    first = found["metrics"]["time_to_first_token_ms"]["successful"]["median"]
    per_second = found["metrics"]["output_tokens_per_second"]["successful"]["mean"]
    print(f"# guidellm, {kind}: TTFT {first:.0f} ms, {per_second:.0f} output tokens/s", flush=True)


@session.check("load, chat")
def chat(servers: Servers) -> None:
    check(benchmark(servers, "/v1/chat/completions"), "chat")


@session.check("load, completions")
def completions(servers: Servers) -> None:
    check(benchmark(servers, "/v1/completions"), "completions")


if __name__ == "__main__":
    session.main()
