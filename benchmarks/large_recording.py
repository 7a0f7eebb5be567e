"""Open a large recording of vLLM: how long until the first picture, and how much memory it takes.

    python -m benchmarks.large_recording FOLDER --gb 1

The recording is invented, in the recorder's format: 128 running requests with prompts of 512 tokens
and outputs of 256, and no texts, as of a server under full load. A step has about 3.5 KB.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

SEATS, BLOCK, PROMPT, OUTPUT = 128, 16, 512, 256
BLOCKS = SEATS * (PROMPT + OUTPUT) // BLOCK + SEATS


def write(path: Path, size: int) -> int:
    """Write a recording of at least `size` bytes; return its number of steps."""
    settings = {
        "token_budget": 8192, "max_batch_size": SEATS, "num_blocks": BLOCKS, "block_size": BLOCK,
        "policy": "fcfs", "chunked_prefill": True, "whole_sequence": True, "prefix_cache": False,
        "async_scheduling": False, "drafts": 0, "max_model_len": 4096,
    }  # fmt: skip
    free, running, step, arrived, clock = list(range(BLOCKS)), {}, 0, 0, 0
    head = {"type": "underglass_vllm", "version": 1, "engine": "vLLM 0.32.0", "model": "invented"}
    head |= {"settings": settings, "tokens": False, "unix_us": 1_795_000_000_000_000, "part": 1}
    with path.open("w") as file:

        def line(value: dict[str, object]) -> None:
            file.write(json.dumps(value, separators=(",", ":")) + "\n")

        line(head)
        while file.tell() < size:
            step, clock, ops, rows = step + 1, clock + 30_000, [], []
            # One place is filled per step, so that requests are at different places of their outputs.
            if len(running) < SEATS:
                arrived += 1
                line({"type": "arrived", "t": clock, "request": arrived, "id": f"chat-{arrived:x}",
                      "prompt": PROMPT, "max_tokens": OUTPUT, "priority": 0, "hashes": []})  # fmt: skip
                blocks = [free.pop() for _ in range(PROMPT // BLOCK)]
                running[arrived] = [0, blocks]
                ops.append(["admit", arrived, [], blocks])
            gains, ended = [], []
            for request, entry in running.items():
                done, blocks = entry
                count = PROMPT if done == 0 else 1
                if done and done % BLOCK == 0:
                    blocks.append(free.pop())
                    ops.append(["grow", request, blocks[-1:]])
                rows.append([request, done, count])
                gains.append([request, 1])
                entry[0] = done + count
                if entry[0] >= PROMPT + OUTPUT - 1:
                    ended.append(request)
            line({"type": "step", "step": step, "t": clock, "took": 400, "ops": ops, "rows": rows,
                  "waiting": 0, "head": None, "free": len(free)})  # fmt: skip
            for request in ended:
                free += reversed(running.pop(request)[1])
            finished = [["finish", request, "length"] for request in ended]
            line({"type": "done", "step": step, "t": clock + 29_000, "gains": gains,
                  "ops": finished, "free": len(free)})  # fmt: skip
    return step


def main() -> None:
    """Write the recording unless it is there, open it in a Chromium, and print what that took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gb", type=float, default=1.0)
    asked = parser.parse_args()
    path = asked.folder / f"recording_{asked.gb:g}.jsonl"
    if not path.exists():
        print(f"{write(path, int(asked.gb * 1e9))} steps written")
    from playwright.sync_api import sync_playwright

    from authoring.lab import CHROMIUM_FLAGS, chromium_path

    began = time.perf_counter()
    command = [sys.executable, "-m", "server.cli", "open", "--no-browser", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        address = process.stdout.readline().strip()
        print(f"address after {time.perf_counter() - began:.1f} s")
        with sync_playwright() as playwright:
            chromium = playwright.chromium
            browser = chromium.launch(executable_path=chromium_path(), args=CHROMIUM_FLAGS)
            page = browser.new_page()
            page.goto(address, timeout=0)
            page.wait_for_selector(".underglass[data-ready=true]", timeout=0)
            print(f"first picture after {time.perf_counter() - began:.1f} s")
            page.wait_for_selector(".underglass[data-loaded='1']", timeout=0)
            print(f"whole log read after {time.perf_counter() - began:.1f} s")
            browser.close()
        status = Path(f"/proc/{process.pid}/status").read_text()
        peak = next(one for one in status.splitlines() if one.startswith("VmHWM"))
        print(f"memory of the command at most {int(peak.split()[1]) / 1e6:.2f} GB")
        process.send_signal(2)


if __name__ == "__main__":
    main()
