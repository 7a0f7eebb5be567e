"""Every figure of `python -m benchmarks` runs, here on tiny sizes."""

import json
import multiprocessing
import os
import sys

import pytest

from benchmarks import __main__, board, harness, llama_cpp_library
from benchmarks.load import gateway
from tests.server.harness import ForkedServer, serve_forked
from visualizer.pictures import chromium_path

TINY = {
    "speed": "--rounds 2",
    "sizes": "--shapes tiny --weights float32,Q8_0 --batches 2 --steps 2 --context 8 --threads 1",
    "logits": "--models tiny,bundled --types Q4_0,Q4_K --dtypes float32 --texts 1 --tokens 8",
    "devices": "--requests 4",
    "kv": "--texts 2 --questions 2",
    "loading": "--shape tiny --only F16",
    "routing": "--requests 40 --replicas 2 --seeds 1 --workloads chats --seconds 1",
    "board": "--events 60 --seeks 6",
    "load": "--scale 0.01",
    "chaos": "--runs 1 --seconds 4 --faults 2 --only stop-server --only cut-connections",
}


SLOW = {"load", "board", "chaos"}  # their parts are tested with the server and in Chromium
FIGURES = [
    pytest.param(one, marks=[pytest.mark.soak] if one in SLOW else [], id=one)
    for one in __main__.FIGURES
]


@pytest.mark.parametrize("figure", FIGURES)
def test_every_figure_is_measured_and_saved(figure, monkeypatch, tmp_path):
    monkeypatch.setattr(sys.modules["benchmarks.load"], "serve_in_background", serve_forked)
    run = lambda command: ForkedServer("underglass.commands", *command[3:])  # noqa: E731
    monkeypatch.setattr(gateway, "BackgroundServer", run)
    if not llama_cpp_library.is_fetched():  # `make test-fast` does it; tests use no network
        monkeypatch.setattr(llama_cpp_library, "_PACKAGES", {})
    monkeypatch.setattr(harness, "FOLDER", tmp_path)
    monkeypatch.setattr(board, "ROUNDS", 1)
    monkeypatch.setattr(sys, "argv", ["benchmarks", figure, *TINY[figure].split()])
    if figure == "board" and not (chromium_path() or os.environ.get("UNDERGLASS_REQUIRE_BROWSER")):
        pytest.skip("no Chromium")
    if figure == "board":  # where Playwright has run, asyncio.run() fails
        child = multiprocessing.get_context("fork").Process(target=__main__.main)
        child.start()
        child.join()
        assert child.exitcode == 0
    else:
        with pytest.raises(SystemExit) as ended:
            __main__.main()
        if figure == "logits" and not llama_cpp_library.is_fetched():
            pytest.skip(str(ended.value))
        assert ended.value.code == 0
    saved = json.loads((tmp_path / f"{figure}.json").read_text())
    assert saved["machine"]["cpu"] and saved["figures"]
