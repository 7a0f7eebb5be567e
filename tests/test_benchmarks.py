"""Every figure of `python -m benchmarks` runs, here on tiny sizes; tests/browser has the board's."""

import json
import sys

import pytest

from benchmarks import __main__, harness, llama_cpp_library
from benchmarks.load import faults, gateway
from tests.facts import assert_names
from tests.server.harness import ForkedServer, serve_forked, start

TINY = {
    "speed": "--rounds 2",
    "sizes": "--shapes tiny --weights float32,Q8_0 --batches 2 --steps 2 --context 8 --threads 1",
    "logits": "--models tiny,bundled --types Q4_0,Q4_K --dtypes float32 --texts 1 --tokens 8",
    "loading": "--shape tiny --only F16",
    "routing": "--requests 40 --decisions 4",
    "load": "--scale 0.01",
}


def fork(command):
    return ForkedServer("underglass.commands", *command[3:])


@pytest.mark.parametrize("figure", sorted(__main__.FIGURES.keys() - {"board"}))
def test_every_figure_is_measured_and_saved(figure, monkeypatch, tmp_path):
    for module in (sys.modules["benchmarks.load"], faults, gateway):
        monkeypatch.setattr(module, "serve_in_background", serve_forked)
    monkeypatch.setattr(faults, "under_test", start)
    monkeypatch.setattr(gateway, "BackgroundServer", fork)
    if not llama_cpp_library.is_fetched():  # by `make test-fast`; tests use no network
        monkeypatch.setattr(llama_cpp_library, "_PACKAGES", {})
    monkeypatch.setattr(harness, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["benchmarks", figure, *TINY[figure].split()])
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    if figure == "logits" and not llama_cpp_library.is_fetched():
        assert_names(ended.value.code, "llama.cpp")
        return
    assert ended.value.code == 0
    saved = json.loads((tmp_path / f"{figure}.json").read_text())
    assert saved["machine"]["cpu"] and saved["figures"]
