"""`show`, `to_html` and `python -m visualizer` take cluster logs, too."""

import base64
import gzip
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.facts import assert_names, raises_naming
from tests.visualizer.clusters import crowd, three_replicas
from tests.visualizer.storytellers import storytellers
from tests.visualizer.test_html import packed_log
from underglass.commands import app
from visualizer import ClusterBoard, read, show, to_html
from visualizer.html import CLUSTER_MODULE, MODULE
from visualizer.reading.summary import summary
from visualizer.widgets import cluster_board


@pytest.fixture
def path(tmp_path):
    three_replicas().save(tmp_path / "run.jsonl")
    return tmp_path / "run.jsonl"


def shown(log: Any, **options: Any) -> ClusterBoard:
    board = show(log, **options)
    assert isinstance(board, ClusterBoard)
    return board


def test_a_page_of_a_cluster_log_has_the_log_and_what_it_shows_first(path):
    log = three_replicas()
    page = to_html(log, at_ms=272.5, select=3, theme="dark", title="Three")
    assert packed_log(page) == log.to_bytes()
    assert "at: 272500, selected: 3" in page
    assert not re.findall(r'(?:src|href)="', page)
    same = {
        to_html(form) for form in (log, path, str(path), log.to_bytes(), log.to_bytes().decode())
    }
    assert len(same) == 1


def test_the_module_of_a_cluster_is_only_in_pages_of_cluster_logs():
    [one, many] = [
        text.replace("</script", "<\\/script")
        for text in (MODULE.read_text("utf-8"), CLUSTER_MODULE)
    ]
    single, cluster = to_html(storytellers()), to_html(three_replicas())
    assert (one in single, many in single) == (True, False)
    assert (one in cluster, many in cluster) == (False, True)


def test_show_returns_a_cluster_board_for_each_form_of_a_cluster_log(path):
    log = three_replicas()
    for form in (log, path, str(path), log.to_bytes()):
        board = shown(form, select=3)
        assert board.selected == 3
        assert list(board.replicas) == ["0", "1", "2"]
    assert_names(repr(board), 3, 28)
    assert gzip.decompress(base64.b64decode(board.log)) == log.to_bytes()


def test_the_cursor_and_the_selection_are_python_values():
    board = shown(three_replicas(), select=None)
    assert (board.selected, board.at_ms) == (None, None)
    board.at_ms = 272.5
    board.selected = 4
    assert (board.at, board.at_ms, board.request, board.selected) == (272_500, 272.5, 4, 4)
    board.selected = None
    assert (board.request, board.selected) == (-1, None)
    with raises_naming(ValueError, "select", 99):
        board.selected = 99


def test_a_log_that_is_too_large_to_save_is_sent_when_the_page_asks(monkeypatch):
    monkeypatch.setattr(cluster_board, "SAVED_BYTES", 1000)
    board = shown(crowd())
    assert not board.log
    sent: list[Any] = []
    monkeypatch.setattr(board, "send", lambda content, buffers: sent.append((content, buffers)))
    board._handle_custom_msg({"ask": "log"}, [])
    [(content, [data])] = sent
    assert content == {"log": True}
    assert gzip.decompress(data) == crowd().to_bytes()


def test_options_of_the_other_kind_are_rejected():
    cluster, single = three_replicas(), storytellers()
    for option in ("step", "window", "range", "axis", "slo", "panel", "level"):
        with raises_naming(ValueError, option, 3):
            show(cluster, **{option: 3})
    for log, options in (
        (cluster, {"step": 3}),
        (single, {"at_ms": 3}),
        (cluster, {"select": 99}),
        (cluster, {"level": "some"}),
    ):
        with raises_naming(ValueError, *options, *options.values()):
            to_html(log, **options)
    with raises_naming(ValueError, "at_ms", 3, "step"):
        show(single, at_ms=3)  # type: ignore[call-overload]
    with raises_naming(TypeError, "EventLog"):
        ClusterBoard(single)  # type: ignore[arg-type]


def test_the_command_writes_a_page_or_the_decisions(path, tmp_path):
    def run(*arguments: object) -> Any:
        return CliRunner().invoke(app, ["open", *map(str, arguments)])

    page = tmp_path / "page.html"
    done = run(path, "--html", page, "--select", 3, "--theme", "dark")
    assert done.exit_code == 0, done.output
    expected = to_html(three_replicas(), select=3, theme="dark", title="run.jsonl")
    assert page.read_text("utf-8") == expected
    squeezed = tmp_path / "run.jsonl.gz"
    squeezed.write_bytes(gzip.compress(path.read_bytes()))
    written = Path(run(squeezed, "--html", page).stdout.strip())
    assert packed_log(written.read_text("utf-8")) == path.read_bytes()
    assert run(path, "--summary").stdout.strip() == summary(three_replicas())
    table = run(path, "--csv", tmp_path / "tables").stdout.strip()
    lines = Path(table).read_text("utf-8").splitlines()
    assert len(lines) == 1 + len(read(three_replicas()).decision_rows)
    for option in (["--step", 3], ["--perfetto", tmp_path / "x.json"]):
        failed = run(path, *option)
        assert failed.exit_code == 2
        assert_names(failed.output, str(option[0]), "cluster")
