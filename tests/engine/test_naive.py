"""`python -m engine` runs, and the engine's tokens equal the naive loop's."""

import pytest

from engine.__main__ import main
from tests.facts import assert_names


def test_the_engine_matches_the_naive_loop(monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.argv", ["engine"])
    assert main() == 0
    assert_names(capsys.readouterr().out.splitlines()[-1], True)


def test_a_model_that_is_not_there_is_named(monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["engine", "no-such-folder"])
    with pytest.raises(SystemExit, match="no-such-folder"):
        main()
