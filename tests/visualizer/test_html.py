"""The exported page is one file that loads nothing else, and a log's text never becomes markup."""

import base64
import gzip
import os
import re
import shutil
import subprocess
import sys

from engine.core.log import EventLog
from tests.facts import raises_naming
from tests.visualizer.storytellers import storytellers
from visualizer import to_html
from visualizer.html import MODULE


def packed_log(page: str) -> bytes:
    """The log that a page holds, unpacked."""
    found = re.search(r'id="log">([^<]*)<', page)
    return gzip.decompress(base64.b64decode(found[1]))


def test_the_page_holds_the_log_and_nothing_from_outside(tmp_path):
    log = storytellers()
    page = to_html(log, tmp_path / "board.html", step=5, select=3, theme="dark")
    assert (tmp_path / "board.html").read_text("utf-8") == page
    assert packed_log(page) == log.to_bytes()
    assert not re.findall(r'(?:src|href)="', page)
    assert "step: 5, selected: 3" in page
    assert '<html lang="en" data-theme="dark">' in page


def test_nothing_ends_a_script_early_and_titles_are_text():
    page = to_html(storytellers(), title="<script>alert(1)</script>")
    assert page.count("</script>") == page.count("<script") == 3
    assert "&lt;script&gt;alert(1)" in page


def test_an_unknown_theme_is_rejected():
    with raises_naming(ValueError, "light", "dark", None):
        to_html(storytellers(), theme="blue")


def test_the_log_that_the_front_ends_own_tests_read_is_what_the_engine_writes():
    """To renew it: `storytellers().save("visualizer/frontend/test/storytellers.jsonl")`."""
    committed = MODULE.parents[1] / "frontend" / "test" / "storytellers.jsonl"
    assert EventLog.load(committed).deterministic() == storytellers().deterministic()


def test_without_the_bundle_the_import_names_the_command_that_builds_it(tmp_path):
    root = MODULE.parents[2]
    ignored = shutil.ignore_patterns("frontend", "static", "bundled", "__pycache__")
    for package in ("engine", "server", "underglass", "visualizer"):
        shutil.copytree(root / package, tmp_path / package, ignore=ignored)
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    served = "import server.api.live as live, fastapi; live.install_page(fastapi.FastAPI())"
    for code, module in {"import visualizer.html": "board.js", served: "live_page.js"}.items():
        command = [sys.executable, "-m", "IPython", "-c", code]
        result = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
        [line] = result.stdout.strip().splitlines()  # without the source that a notebook shows
        assert module in line and "`make setup`" in line
    log = root / "tests" / "fixtures" / "vllm" / "vllm_tight.jsonl.gz"
    summary = [sys.executable, "-P", "-m", "visualizer", str(log), "--summary"]
    result = subprocess.run(summary, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert (result.returncode, "vLLM 0.32.0" in result.stdout) == (0, True), result.stderr
