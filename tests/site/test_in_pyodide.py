"""The page's model in Pyodide, the Python of a page: arrays cross between the languages and back."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.site.page_models import NODE

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
PYODIDE = REPOSITORY / "visualizer" / "frontend" / "node_modules" / "pyodide"
# `make site` downloads the wheels; see site/page-wheels.txt.
WHEELS = sorted((REPOSITORY / "build" / "page-wheels").glob("*/msgspec-*.whl"))


@pytest.mark.skipif(NODE is None or not PYODIDE.is_dir(), reason="needs Node and Pyodide")
@pytest.mark.skipif(not WHEELS, reason="needs msgspec for Pyodide: make site")
def test_a_page_computes_what_torch_computes():
    assert NODE is not None
    script = str(HERE / "pyodide_script.py")
    in_page = [NODE, str(HERE / "in_pyodide.mjs"), str(REPOSITORY), script, str(WHEELS[-1])]
    page, torch = (
        json.loads(subprocess.run(command, check=True, capture_output=True, cwd=REPOSITORY).stdout)
        for command in (in_page, [sys.executable, script])
    )
    for values in ("logprobs", "scores", "top"):
        for ours, theirs in zip(page.pop(values), torch.pop(values), strict=True):
            assert ours == pytest.approx(theirs, abs=1e-4)
    assert page == torch
