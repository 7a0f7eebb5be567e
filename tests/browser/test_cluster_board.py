"""The board of a cluster in a browser shows what Python's ClusterLog says."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from engine import ClusterLog, simulate_cluster
from engine.cluster.events import Moved, ReplicaLeft, Routed
from engine.core.log.vocabulary import Admitted
from tests.browser.axe import expect_no_violation
from tests.browser.board import BoardOnPage, counts_at
from tests.visualizer.clusters import (
    COST,
    config,
    crowd,
    faults,
    prefill_and_decode,
    speakers,
    three_replicas,
)
from visualizer import compare, read, to_html
from visualizer.reading.rows.decisions import DecisionRow


class ClusterOnPage(BoardOnPage):
    def __init__(self, page: Page, log: ClusterLog) -> None:
        super().__init__(page, page.locator(".underglass.cluster").first)
        self.log = log
        self.wait()

    def row(self, index: int) -> DecisionRow:
        return read(self.log).decision_rows[index]


@pytest.fixture
def opened(new_page, exports):
    def opened(
        log: ClusterLog, width: int = 1440, height: int = 1200, **options: Any
    ) -> ClusterOnPage:
        page = new_page(width, height)
        page.goto(exports.page(log, **options).as_uri())
        return ClusterOnPage(page, log)

    return opened


@pytest.fixture
def board(opened):
    return opened(three_replicas())


def wrong(log: ClusterLog) -> list[int]:
    return [
        index
        for index, row in enumerate(read(log).decision_rows)
        if row.cached_tokens is not None and row.predicted_tokens != row.cached_tokens
    ]


def test_it_opens_at_a_wrong_prediction_with_the_runs_figures(board):
    rows = read(board.log).decision_rows
    assert int(board.data("route")) in wrong(board.log)
    row = board.row(int(board.data("route")))
    board.expect_data(
        selected=row.request,
        at=round(1000 * (row.routed_ms or 0)),
        requests=len(rows),
        replicas=3,
        judged=len(rows),
        wrong=len(wrong(board.log)),
    )
    summary = board.root.locator(".summary")
    delivered = sum(row.cached_tokens or 0 for row in rows)
    expect(summary).to_have_attribute("data-delivered", str(delivered))
    expect(summary).to_have_attribute("data-prompt", str(sum(row.prompt_tokens for row in rows)))
    sentence = board.root.locator(".sentence")
    expect(sentence).to_contain_text(row.label)
    expect(sentence).to_contain_text(str(row.predicted_tokens))
    # The prefix that is gone is a dashed chain on the chosen replica.
    missing = (row.predicted_tokens - (row.cached_tokens or 0)) // 8
    chosen = board.root.locator(f".tree[data-replica='{row.replica}']")
    expect(chosen).to_have_attribute("data-gone", str(missing))
    expect(chosen.locator("> canvas").first).to_be_visible()
    others = board.root.locator(f".tree:not([data-replica='{row.replica}'])")
    for other in others.all():
        expect(other).to_have_attribute("data-gone", "")
    # The maps show the memory that Python's fold has.
    board.press("End")
    for replica, log in board.log.replicas.items():
        counts = counts_at(log, int(read(log).steps.index[-1]))
        section = board.root.locator(f".blocks[data-replica='{replica}']")
        for kind in ("cached", "unshared", "shared", "free"):
            expect(section).to_have_attribute(f"data-{kind}", str(counts[kind]))
        group = board.root.locator(f".replica[data-replica='{replica}']")
        expect(group).to_have_attribute("data-waiting", str(counts["waiting"]))


def test_keys_select_each_decision_and_the_table_shows_what_the_router_knew(board):
    routed = [event for event in board.log if isinstance(event, Routed)]
    board.press("Escape", "ArrowDown")
    for index, event in enumerate(routed[:8]):
        board.expect_data(route=index, selected=event.request, at=event.t["at"])
        for replica, hit in event.hits.items():
            line = board.root.locator(f".decision tr[data-replica='{replica}']")
            expect(line).to_have_attribute("data-hit", str(hit))
            expect(line.locator(".loads")).to_have_text(str(event.loads[replica]))
        chosen = board.root.locator(".decision tr.chosen")
        expect(chosen).to_have_attribute("data-replica", event.replica)
        board.press("ArrowDown")
    board.press("Escape")
    board.expect_data(route="", selected="")
    for index in wrong(board.log):
        board.press("m")
        board.expect_data(route=index)


def test_a_click_on_an_arrival_or_a_lane_selects_the_request(board):
    router = board.root.locator(".picture canvas").first
    box = router.bounding_box()
    pairs = str(router.get_attribute("data-arrivals")).split()
    index, x = (int(part) for part in pairs[1].split(":"))
    # The rows are 35 px high; the first begins 18 px below the top.
    y = 18 + 35 * (["0", "1", "2"].index(board.row(index).replica) + 1) - 6
    board.page.mouse.click(box["x"] + 6 + x + 4, box["y"] + y - 4)
    board.expect_data(route=index, at=round(1000 * (board.row(index).routed_ms or 0)))
    chip = board.root.locator(".agreement .chip").first
    request = chip.get_attribute("data-request")
    chip.click()
    board.expect_data(selected=request)


def test_the_cursor_moves_from_moment_to_moment_and_the_view_zooms(board):
    board.press("Home")
    begin, end = board.data("view").split()
    board.expect_data(at=begin, touched="true")
    seen = [int(board.data("at"))]
    for _ in range(5):
        board.press("ArrowRight")
        expect(board.root).not_to_have_attribute("data-at", str(seen[-1]))
        seen.append(int(board.data("at")))
    assert seen == sorted(set(seen))
    board.press("ArrowLeft")
    board.expect_data(at=seen[-2])
    board.press("w")
    expect(board.root).not_to_have_attribute("data-view", f"{begin} {end}")
    board.press("f")
    board.expect_data(view=f"{begin} {end}")


def test_a_replica_opens_as_a_board_of_its_own_and_closes_again(board):
    row = board.row(int(board.data("route")))
    board.press("v", "o")  # its level is that of the cluster's board, not of the replica's
    own, steps = board.root.locator(".underglass"), read(board.log.replicas[row.replica]).steps
    expect(own).to_have_attribute("data-ready", "true")
    expect(own).to_have_attribute("data-selected", str(row.its_request))
    expect(own).to_have_attribute("data-steps", str(len(steps)))
    expect(own.locator(".summary")).to_be_visible()
    board.root.locator("[data-act=all-replicas]").click()
    expect(board.root.locator(".picture")).to_be_visible()
    board.expect_data(level="lanes")
    expect(board.root.locator(":is(.summary, .replicas):visible")).to_have_count(0)


def test_more_than_eight_replicas_are_folded_but_not_the_chosen_one(opened):
    log = crowd()
    last = next(row for row in read(log).decision_rows if row.replica == "9")
    board = opened(log, 1280, 1600, select=last.request)
    shown = board.data("shown").split()
    assert len(shown) == 8
    assert "9" in shown
    hidden = sum(row.replica not in shown for row in read(log).decision_rows)
    expect(board.root.locator(".folded")).to_contain_text(str(hidden))


def test_it_fits_and_is_accessible(board):
    for width, layout, scheme in ((390, "narrow", "dark"), (1920, "wide", "light")):
        board.page.set_viewport_size({"width": width, "height": 1000})
        board.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        board.expect_data(layout=layout, theme=scheme)
        assert board.page.evaluate("document.documentElement.scrollWidth") <= width
        expect_no_violation(board.page)


def test_without_a_request_it_says_so(new_page, tmp_path):
    whole = three_replicas().to_bytes().splitlines(keepends=True)
    head = b"".join(line for line in whole[:8] if re.match(rb'{"type":"(cluster|replica)', line))
    to_html(ClusterLog.from_bytes(head), tmp_path / "empty.html")
    page = new_page()
    page.goto((tmp_path / "empty.html").as_uri())
    expect(page.locator(".underglass")).to_have_attribute("data-ready", "empty")
    expect(page.locator(".message")).to_contain_text("3 replicas")


def test_a_comparison_lists_the_requests_and_opens_either_run(new_page, tmp_path):
    blind = simulate_cluster(speakers(seed=2), config(), cost=COST, replicas=3, router="random")
    comparison = compare(blind, three_replicas(), ("random", "tree"))
    comparison.to_html(tmp_path / "compared.html")
    page = new_page(1280, 900)
    page.goto((tmp_path / "compared.html").as_uri())
    root = page.locator(".underglass.comparison")
    expect(root).to_have_attribute("data-ready", "true")
    table = comparison.requests
    lines = root.locator(".requests tbody tr")
    assert lines.count() == len(table)
    for line in lines.all():
        row = table.loc[int(line.get_attribute("data-request") or 0)]
        cells = line.locator("td").all_inner_texts()
        assert cells[3:5] == [row.replica_random, row.replica_tree]
        assert cells[5:7] == [str(row.cached_tokens_random), str(row.cached_tokens_tree)]
        moved = str(row.replica_random != row.replica_tree).lower()
        expect(line).to_have_attribute("data-moved", moved)
    first = int(lines.first.get_attribute("data-request") or 0)
    assert abs(table.ttft_change_ms[first]) == table.ttft_change_ms.abs().max()
    expect_no_violation(page)
    root.locator("[data-act=show-1]").click()
    expect(root.locator(".underglass.cluster")).to_have_attribute("data-requests", "28")
    root.locator("[data-act=show-both]").click()
    expect(root.locator(".requests")).to_be_visible()


def test_a_replica_that_is_gone_offers_no_seats_and_comes_back_with_its_earlier_lanes(opened):
    log = faults()["kill"]
    left = next(event for event in log if isinstance(event, ReplicaLeft))
    continued = next(event for event in log if isinstance(event, Routed) and event.output)
    board = opened(log, 1280, at_ms=left.t["at"] / 1000 + 1, select=continued.request)
    way = re.compile(rf"^{left.replica} {continued.replica} ")  # from one machine to the other
    expect(board.root.locator(".path")).to_have_attribute("data-failover", way)
    group = board.root.locator(f".replica[data-replica='{left.replica}']")
    expect(group).to_have_attribute("data-there", "false")
    expect(group).to_have_attribute("data-seats", "0")
    expect(group.locator(".count")).to_contain_text(left.why)
    expect(board.root.locator(".absence").first).to_contain_text(left.why)
    expect(board.root.locator(f".tree[data-replica='{left.replica}']")).to_be_hidden()
    board.press("End")
    expect(group).to_have_attribute("data-there", "true")
    expect(group).to_have_attribute("data-runs", "2")
    runs = [run.parts[0].each(Admitted) for run in log.runs[left.replica]]
    requests = sum(len({event.request for event in run}) for run in runs)
    lanes = group.locator(".lanes canvas")
    expect(lanes).to_have_attribute("aria-label", re.compile(rf"\b{requests} requests"))


def test_a_score_is_drawn_as_the_sum_of_its_terms(opened):
    log = faults()["kill"]
    board = opened(log, 1280)
    board.press("Escape", "ArrowDown")
    event = next(event for event in log if isinstance(event, Routed))
    for replica, terms in event.terms.items():
        its = board.root.locator(f".sum[data-replica='{replica}']")
        expect(its).to_have_attribute("data-score", f"{sum(terms.values()):g}")
        drawn = its.locator(".added [data-term]")
        names = [drawn.nth(i).get_attribute("data-term") for i in range(drawn.count())]
        assert names == [name for name, value in terms.items() if value]


def test_moved_blocks_leave_one_map_and_arrive_at_the_other(opened):
    log = prefill_and_decode()
    move = next(event for event in log if isinstance(event, Moved))
    after = (move.t["at"] + move.t["us"]) / 1000
    board = opened(log, 1280, select=move.request, at_ms=after + 1)
    for replica in (move.source, move.target):
        section = board.root.locator(f".blocks[data-replica='{replica}']")
        expect(section).to_have_attribute("data-moved", "1")
        other = move.target if replica == move.source else move.source
        words = re.compile(rf"{move.blocks} blocks? .*replica {other}")
        expect(section.locator(".moved")).to_have_attribute("aria-label", words)
    held = board.root.locator(f".blocks[data-replica='{move.target}']")
    expect(held).to_have_attribute("data-held", re.compile(rf"^({move.blocks}|{move.blocks + 1})$"))
    board.expect_data(wrong=0)
