"""The gallery: a scenario's name opens its board at its step, with its caption."""

import base64
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.facts import assert_names, raises_naming
from visualizer import Timeline, gallery, show, to_html
from visualizer.logs import read_log, state_at
from visualizer.scenario import Scenario, UnknownScenarioError

NAMES = list(gallery())


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_opens_at_its_step_with_its_request_selected(name):
    one = gallery()[name]
    board = show(name)
    assert (board.step, board.selected) == (one.step, one.select)
    state = state_at(one.log, board.view_model.steps, one.step)
    assert one.select in {request["id"] for request in state["requests"]}
    assert board.view_model.about["caption"] == one.caption


def test_another_moment_can_be_asked_for_and_the_next_board_opens_where_it_should():
    board = show("preemption", step=27)
    assert (board.step, board.selected) == (27, gallery()["preemption"].select)
    show("preemption").step = 5
    assert show("preemption").step == gallery()["preemption"].step
    assert Timeline(board).view_model is board.view_model


@pytest.mark.parametrize("spelling", ["copy-on-write", "Copy on write", " copy_on_write"])
def test_spelling_is_forgiven(spelling):
    assert read_log(spelling) is gallery()["copy_on_write"].log


def test_an_unknown_name_is_answered_with_the_nearest_and_all_names():
    with raises_naming(UnknownScenarioError, "preemtion", *NAMES):
        show("preemtion")
    with raises_naming(UnknownScenarioError, "xylophone", *NAMES):
        gallery()["xylophone"]


def test_a_file_is_never_shadowed_by_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gallery()["hit"].log.save("preemption")
    assert read_log("preemption").to_bytes() == gallery()["hit"].log.to_bytes()
    assert not show("preemption").view_model.about
    with pytest.raises(FileNotFoundError):
        read_log("nowhere.jsonl")
    with pytest.raises(FileNotFoundError):
        read_log(Path("hit"))


def test_a_page_has_the_caption_and_opens_there():
    one = gallery()["eviction"]
    page = to_html("eviction")
    assert f'step: {one.step}, selected: {one.select}, about: {{"title": ' in page
    assert "about:" not in to_html(one.log)


def test_the_table_is_text_and_names_every_scenario():
    table = gallery()
    for one in table.values():
        assert f'show("{one.name}")' in repr(table)
        assert f'show("{one.name}")' in table._repr_html_()
    assert max(map(len, repr(table).splitlines())) <= 100
    hostile = type(table)({"x": Scenario("x", "<script>alert(1)</script>", 1, 1)})
    assert "<script>" not in hostile._repr_html_()


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_has_a_picture_that_is_drawn_from_its_log(name):
    one = gallery()[name]
    (image,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', one.picture_html)
    svg = ET.fromstring(base64.b64decode(image))
    assert (svg.get("width"), svg.get("role")) == ("260", "img")
    title = svg.find("{http://www.w3.org/2000/svg}title")
    assert_names(title.text, name, one.step)
    assert "prefers-color-scheme:dark" in svg.find("{http://www.w3.org/2000/svg}style").text
    assert len(image) < 60_000, "a notebook saves all of them"
