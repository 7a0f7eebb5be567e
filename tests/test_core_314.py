"""A part of the core's tests on CPython 3.14, as pages run it. `make test-core-314` runs them all."""

import re

import pytest

from site_assets import PYODIDE
from tests.core_314.pyodide import run, wheels

FAST = (
    "tests/engine/routing/test_block_index.py",
    "tests/engine/simulation/test_fit.py",
    "tests/engine/test_admission.py",
    "tests/engine/test_calculator.py",
    "tests/engine/test_eviction.py",
    "tests/engine/test_hash_cache.py",
    "tests/engine/test_messages.py",
    "tests/engine/test_waiting_queue.py",
    "tests/engine/test_why.py",
)


def test_cache_queue_explanations_and_cost_model_work_on_python_3_14(capfd):
    if not PYODIDE.is_dir():
        pytest.skip("Pyodide is not installed: make dev")
    try:
        wheels()
    except SystemExit as error:
        pytest.skip(f"{error}: make test-core-314")
    assert run(["-q", "-rs", *FAST]) == 0, capfd.readouterr().out
    said = capfd.readouterr().out
    passed = re.search(r"(\d+) passed", said)
    assert passed is not None and int(passed[1]) > 30, said
    # A new need of the core would skip tests instead of failing them.
    assert set(re.findall(r"needs (.+)", said)) <= {"pandas"}
