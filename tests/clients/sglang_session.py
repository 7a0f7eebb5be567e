"""SGLang's benchmark, end to end, and what its report says."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.clients.checks import Servers, Session, same

session = Session("sglang")
MODEL = Path(__file__).parents[2] / "engine" / "bundled"


def benchmark(servers: Servers, backend: str, *options: str) -> None:
    """Send 20 requests of 64 prompt and 16 output tokens, 4 at a time; check the report."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.jsonl")
        done = subprocess.run(
            [
                *(sys.executable, "-m", "sglang.benchmark.serving", "--backend", backend),
                *("--base-url", servers.url, "--model", "bundled", "--tokenizer", str(MODEL)),
                *("--dataset-name", "random-ids", "--num-prompts", "20", "--max-concurrency", "4"),
                *("--random-input-len", "64", "--random-output-len", "16"),
                *("--random-range-ratio", "1", "--output-file", str(report), *options),
                "--output-details",
            ],
            env=os.environ | {"HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        found = json.loads(report.read_text())
    same((found["completed"], found["errors"]), (20, [""] * 20))
    same(found["output_lens"], [16] * 20)
    first, per_second = found["mean_ttft_ms"], found["output_throughput"]
    print(f"# sglang, {backend}: TTFT {first:.0f} ms, {per_second:.0f} output tokens/s", flush=True)


@session.check("load, chat")
def chat(servers: Servers) -> None:
    benchmark(servers, "sglang-oai-chat")


@session.check("load, completions")
def completions(servers: Servers) -> None:
    benchmark(servers, "sglang-oai")


@session.check("load, not streamed")
def whole(servers: Servers) -> None:
    benchmark(servers, "sglang-oai", "--disable-stream")


if __name__ == "__main__":
    session.main()
