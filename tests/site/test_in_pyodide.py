"""The page's model in Pyodide, the Python of a page: arrays cross between the languages and back."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from site_assets import PYODIDE, REPOSITORY, page_wheels
from tests.site.page_models import NODE

HERE = Path(__file__).parent


@pytest.mark.skipif(NODE is None or not PYODIDE.is_dir(), reason="needs Node and Pyodide")
def test_a_page_computes_what_torch_computes():
    try:
        wheels = list(map(str, page_wheels()))
    except SystemExit as error:  # nothing is downloaded yet, and there is no network
        pytest.skip(f"{error}: make site")
    assert NODE is not None
    script = str(HERE / "pyodide_script.py")
    in_page = [NODE, str(HERE / "in_pyodide.mjs"), str(REPOSITORY), script, *wheels]
    page, torch = (
        json.loads(subprocess.run(command, check=True, capture_output=True, cwd=REPOSITORY).stdout)
        for command in (in_page, [sys.executable, script])
    )
    for values in ("logprobs", "scores", "top"):
        for ours, theirs in zip(page.pop(values), torch.pop(values), strict=True):
            assert ours == pytest.approx(theirs, abs=1e-4)
    assert page.pop("model").items() <= torch.pop("model").items()  # kernels are torch's own
    assert page == torch
