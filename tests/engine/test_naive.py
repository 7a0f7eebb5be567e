"""`python -m engine` runs, and the engine's tokens equal the naive loop's."""

import subprocess
import sys

from tests.facts import assert_names


def test_the_engine_matches_the_naive_loop() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "engine"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert_names(done.stdout.splitlines()[-1], True)


def test_a_model_that_is_not_there_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "engine", "no-such-folder"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "no-such-folder" in done.stderr
    assert "Traceback" not in done.stderr
