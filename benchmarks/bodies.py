"""Hostile request bodies: their cost to the server, and the pause that they cause in another stream.

    python -m benchmarks.bodies [MEGABYTES]

Each body is sent twice. Alone: the server's CPU time and peak memory. With a stream in
parallel: the longest gap between two of its tokens, and the longest gap without the body.
Linux only: figures come from /proc.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import httpx

from server.process import BackgroundServer, serve_in_background

TICKS = os.sysconf("SC_CLK_TCK")
BESIDE = 1.0  # seconds of stream before and after


def bodies(size: int) -> dict[str, tuple[str, str]]:
    """Name -> path and JSON of about `size` bytes."""

    def filled(head: str, piece: str, tail: str) -> str:
        pieces = (size - len(head) - len(tail)) // (len(piece) + 1)
        return head + ",".join([piece] * pieces) + tail

    def numbered(head: str, value: str, tail: str) -> str:
        entries = size // (len(value) + 12)
        return head + ",".join(f'"{n:08}":{value}' for n in range(entries)) + tail

    completions, chat = "/v1/completions", "/v1/chat/completions"
    nested = "[" * 50 + "]" * 50
    return {
        "floats": (completions, filled('{"prompt":[', "1.5", "]}")),
        "valid ids": (completions, filled('{"prompt":[', "100", "]}")),
        "prompts [1]": (completions, filled('{"prompt":[', "[1]", "]}")),
        "nested lists": (completions, filled('{"prompt":[', nested, "]}")),
        "biases": (completions, numbered('{"prompt":"x","logit_bias":{', '"x"', "}}")),
        "stop": (completions, filled('{"prompt":"x","stop":[', "1", "]}")),
        "unknown fields": (completions, numbered('{"prompt":"x",', "1", "}")),
        "duplicate keys": (completions, filled('{"prompt":"x",', '"user":"x"', "}")),
        "one number": (completions, '{"prompt":"x","seed":0.' + "1" * size + "}"),
        "one string": (completions, '{"prompt":"' + "x" * size + '"}'),
        "escaped string": (completions, '{"prompt":"' + '\\"' * (size // 2) + '"}'),
        "messages": (chat, filled('{"messages":[', "5", "]}")),
        "content parts": (
            chat,
            filled('{"messages":[{"role":"user","content":[', '{"type":"text","text":""}', "]}]}"),
        ),
        "tokenize": ("/tokenize", numbered("{", "1", "}")),
        "detokenize": ("/detokenize", filled('{"tokens":[', "-1", "]}")),
        "detokenize ids": ("/detokenize", filled('{"tokens":[', "100", "]}")),
        "controls": ("/engine/step", numbered("{", "1", "}")),
    }


def main(size: int = 1_000_000) -> None:
    """Print a table."""
    print(f"{'body':16} {'bytes':>9} status  CPU s  peak MB  gap ms  (without)")
    with serve_in_background(request_log="off") as server:
        for name, path_and_body in bodies(size).items():
            measure(server, name, *path_and_body)


def measure(server: BackgroundServer, name: str, path: str, body: str) -> None:
    """Print one line."""

    def send() -> int:
        headers = {"Content-Type": "application/json"}
        return httpx.post(server.url + path, content=body, headers=headers, timeout=120).status_code

    pid = server.process.pid
    httpx.post(server.url + "/v1/completions", json={"prompt": "x"}, timeout=120).raise_for_status()
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # resets the peak
    memory, cpu = _memory(pid, "VmRSS"), _cpu(pid)
    status = send()
    cpu, peak = _cpu(pid) - cpu, _memory(pid, "VmHWM") - memory
    quiet, busy = _gaps(server.url, send)
    print(
        f"{name:16} {len(body):9} {status:6} {cpu:6.2f} {peak:8.0f} {busy:7.0f} {quiet:9.0f}",
        flush=True,
    )


def _gaps(url: str, send: Callable[[], int]) -> tuple[float, float]:
    """The longest gaps between tokens of a stream, in ms: before, and while the body is handled."""
    times: list[float] = []
    stop = threading.Event()

    def read() -> None:
        prompt = {"prompt": "Once", "max_tokens": 1000, "ignore_eos": True}
        while not stop.is_set():
            with httpx.stream("POST", url + "/v1/completions", json=prompt, timeout=120) as answer:
                for line in answer.iter_lines():
                    if line:
                        times.append(time.monotonic())
                    if stop.is_set():
                        return

    reader = threading.Thread(target=read)
    reader.start()
    while not times:
        time.sleep(0.01)
    time.sleep(BESIDE)
    began = time.monotonic()
    send()
    time.sleep(BESIDE)
    stop.set()
    reader.join()
    gaps = [(later, later - one) for one, later in pairwise(times)]
    quiet = max(gap for at, gap in gaps if at < began)
    busy = max(gap for at, gap in gaps if at >= began)
    return quiet * 1000, busy * 1000


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _memory(pid: int, field: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field + ":"))


if __name__ == "__main__":
    main(*(int(float(argument) * 1e6) for argument in sys.argv[1:]))
