"""The live page against a server that really runs: what is drawn is what the engine does."""

import re
from urllib.parse import urljoin, urlsplit

import pytest
from playwright.sync_api import expect

from engine.core.log.vocabulary import Preempted
from tests.browser.axe import expect_no_violation
from tests.browser.board import BoardOnPage
from tests.browser.live import (
    ask,
    engine_button,
    expect_same_as_trace,
    held_server,
    open_live,
    run_until,
    send,
    steps,
    watch,
)
from tests.facts import assert_names
from tests.server.harness import Feed, get, limit_files, post, start, trace
from visualizer import read
from visualizer.logs import StepIndex, state_at


@pytest.fixture(scope="module")
def process():
    with held_server() as server:
        yield server


@pytest.fixture
def server(process):
    """A held engine at the beginning of a run; the server's process is the module's."""
    post(process.url, "/engine/pause").raise_for_status()
    new_run = {"settings": {}, "prompts": "none", "abort": True}
    post(process.url, "/engine/restart", new_run).raise_for_status()
    return process


def test_it_joins_in_the_middle_and_every_step_equals_the_fold_of_the_trace(new_page, server):
    url = server.url
    ask(url, *"ABCDEFG", max_tokens=12)
    assert steps(url, 5) == 5
    board = open_live(new_page(), url).wait()
    for step in range(5, 18):
        expect_same_as_trace(board, url, step)
        steps(url, 1)
    expect_same_as_trace(board, url, 18)
    board.press("Home")
    expect_same_as_trace(board, url, 1)  # it has the steps before, too


def test_an_engine_that_was_never_asked_says_so_and_is_drawn_from_its_first_request(
    new_page, server
):
    page = new_page()
    session = page.context.new_cdp_session(page)
    scripts: list[dict[str, str]] = []
    session.on("Debugger.scriptParsed", lambda script: scripts.append(script))
    session.send("Debugger.enable")
    board = open_live(page, server.url)
    expect(board.root).to_have_attribute("data-ready", "waiting")
    expect(page.locator("[data-message=waiting]")).to_be_visible()
    # A debugger finds the source maps of the modules.
    maps = [urljoin(one["url"], one["sourceMapURL"]) for one in scripts if one.get("sourceMapURL")]
    sources = [one for each in maps for one in page.request.get(each).json()["sources"]]
    assert any(source.endswith("src/model/fold.ts") for source in sources)
    # The card says how to join; on loopback no other machine can.
    expect(page.locator("#join")).to_be_visible()
    expect(page.locator("#invitation")).to_have_text("Only this machine")
    expect(page.locator("#qr")).to_be_hidden()
    expect_no_violation(page)
    ask(server.url, "Ada")
    board.wait()
    expect(page.locator("#join")).to_be_hidden()
    steps(server.url, 1)
    expect_same_as_trace(board, server.url, 1)


def test_the_teachers_buttons_hold_the_engine_step_it_and_let_it_go(new_page, server):
    post(server.url, "/engine/resume").raise_for_status()
    page = new_page()
    board = open_live(page, server.url)
    pause, step, resume = (engine_button(page, name) for name in ("pause", "step", "resume"))
    expect(step).to_be_disabled()
    expect(resume).to_be_disabled()
    pause.click()
    expect(board.root).to_have_attribute("data-held", "true")
    expect(pause).to_be_disabled()
    callers = ask(server.url, "Ada", "Bo")
    board.wait()
    for number in (1, 2, 3):
        # The board stands at a step as soon as a request has arrived for it: wait for the engine.
        with page.expect_response("**/engine/step") as answer:
            step.click()
        assert answer.value.json()["step"] == number
        expect_same_as_trace(board, server.url, number)
    page.locator("#count").fill("2")
    page.locator("[data-until=steps]").click()
    expect_same_as_trace(board, server.url, 5)
    assert get(server.url, "/health")["step"] == 5
    resume.click()
    expect(board.root).to_have_attribute("data-held", "false")
    for caller in callers:
        assert '"full_text":"abcdef"' in caller.read_all()
    expect_same_as_trace(board, server.url, get(server.url, "/health")["step"])


def test_a_prompt_streams_here_is_selected_on_the_board_and_says_how_it_went(new_page, server):
    page = new_page()
    board = open_live(page, server.url)
    page.locator("#raw").check()
    page.locator("#name").fill("<b>Zoë Ωmega")
    hostile = "<img src=x onerror='1()'>&lt;"
    page.locator("#text").fill(hostile)
    page.locator("#tokens").fill("4")
    page.locator("#text").press("Enter")
    stream = page.locator(".stream")
    expect(stream).to_have_attribute("data-state", "waits")
    board.wait()
    board.expect_selected(1)
    step = engine_button(page, "step")
    for text in ("a", "ab", "abc"):
        step.click()
        expect(stream.locator(".text")).to_have_text(text)
    step.click()
    expect(stream).to_have_attribute("data-state", "length", timeout=30_000)
    expect(stream.locator(".words")).to_have_text(re.compile(r"\d m?s\b"))  # to the first token
    assert "<b>Zoë Ωmega" in board.text(".sentence")
    expect(stream.locator(".prompt")).to_have_text(hostile)
    assert page.locator("main img:not(.postcard img), .stream b").count() == 0

    send(page, "Why?", tokens="9")
    expect(stream.first).to_have_attribute("data-state", "waits")
    engine_button(page, "resume").click()
    expect(stream.first).to_have_attribute("data-state", "stop")
    expect(stream.first.locator(".text")).to_have_text("abcde")


def test_a_stream_is_stopped_and_an_error_is_said_in_words(new_page, server):
    page = new_page()
    board = open_live(page, server.url)
    stream = page.locator(".stream").first
    send(page, "Once")
    board.wait()
    stream.locator("button.stop").click()
    expect(stream).to_have_attribute("data-state", "abort")
    expect(board.root).to_have_attribute("data-waiting", "0")
    assert get(server.url, "/health")["waiting"] == 0

    send(page, "x" * 300)
    expect(stream).to_have_attribute("data-state", "error")
    expect(stream.locator(".words")).to_have_text(re.compile(r"\bprompt\b"))

    send(page, "Once", name="fail-after-2")
    engine_button(page, "resume").click()
    expect(stream).to_have_attribute("data-state", "error")
    expect(stream.locator(".words")).to_contain_text("told to fail")
    expect(stream.locator(".text")).to_have_text("ab")


def test_a_lost_server_leaves_the_picture_and_a_new_one_begins_a_new_run(new_page):
    with held_server() as first:
        ask(first.url, "Ada", "Bo")
        page = new_page()
        board = open_live(page, first.url).wait()
        steps(first.url, 2)
        expect_same_as_trace(board, first.url, 2)
        run = board.data("run")
        shown = {name: board.data(name) for name in ("step", "unshared", "running")}
        first.process.kill()
        expect(board.root).to_have_attribute("data-live", "lost")
        expect(board.root.locator(".live span").first).to_have_text(re.compile(r"\b\d+ s\b"))
        expect(board.root.locator(".grid")).to_have_css("opacity", "0.42")
        assert shown == {name: board.data(name) for name in shown}
        expect(engine_button(page, "step")).to_be_disabled()
    with held_server(port=urlsplit(first.url).port) as second:
        expect(page.locator(".live [data-about=new-run]")).to_be_visible()
        ask(second.url, "Cy")
        expect(board.root).to_have_attribute("data-live", "live")
        assert board.data("run") != run
        steps(second.url, 3)
        expect_same_as_trace(board, second.url, 3)
        assert board.data("requests") == "1"


def test_looking_back_stays_there_while_the_engine_goes_on(new_page, server):
    ask(server.url, "Ada", "Bo", max_tokens=20)
    page = new_page()
    steps(server.url, 4)
    board = open_live(page, server.url).wait()
    expect(board.root).to_have_attribute("data-following", "true")
    steps(server.url, 2)
    board.expect_step(6)
    board.press(",")
    expect(board.root).to_have_attribute("data-following", "false")
    steps(server.url, 3)
    expect(board.root).to_have_attribute("data-steps", "9")
    expect_same_as_trace(board, server.url, 5)
    following = page.locator(".live button")
    expect(following).to_have_attribute("aria-pressed", "false")
    expect(following).to_have_text(re.compile(r"\b9\b"))
    expect_no_violation(page)
    following.click()
    expect_same_as_trace(board, server.url, 9)
    for back, key in (("Home", "n"), (",", "End"), (",", ".")):
        board.press(back)
        expect(board.root).to_have_attribute("data-following", "false")
        board.press(key)
        expect(board.root).to_have_attribute("data-following", "true")
    board.expect_step(9)
    expect(following).to_have_attribute("aria-pressed", "true")
    following.click()
    steps(server.url, 1)
    board.expect_data(steps="10", step=9)


def test_a_long_run_leaves_its_beginning_behind_and_goes_on(new_page, server):
    page = new_page()
    board = watch(page, server.url, "{ limit: 400 }")
    ask(server.url, *"ABCDEF", max_tokens=60)
    board.wait()
    expect(board.root).to_have_attribute("data-requests", "6")
    look = "Object.fromEntries(window.watched.board.model.requests.map((r) => [r.id, r.lane]))"
    step = 0
    lanes: dict[str, int] = {}
    left = board.root.locator(".live [data-about=window]")
    while not left.count():
        step = steps(server.url, 5)
        board.expect_step(step)
        lanes |= page.evaluate(look)
        assert step < 200
    expect_same_as_trace(board, server.url, step)
    first = int(left.get_attribute("data-number") or 0)
    assert first > 1
    assert_names(left.inner_text(), first)
    kept = page.evaluate(look)
    assert kept and kept.items() <= lanes.items(), "each keeps its lane"
    late = new_page()
    watch(late, server.url, "{ limit: 400 }").wait()
    joined = late.evaluate(look)
    assert joined and joined.items() <= lanes.items(), "and has it on boards that join late"
    expect_same_as_trace(board, server.url, steps(server.url, 1))
    board.press("Home")
    expect_same_as_trace(board, server.url, first)
    assert page.evaluate("window.watched.live.model.events.length") <= 400


def test_a_step_that_is_to_come_is_followed_only_while_the_engine_is_held(new_page, server):
    """On a busy engine, a request arrives in nearly every gap: the next step would often be empty."""
    page = new_page()
    board = watch(page, server.url)
    ask(server.url, "Ada", max_tokens=20)
    board.wait()
    board.expect_step(steps(server.url, 3))
    ask(server.url, "Bo")
    board.expect_step(4)
    expect(board.root.locator(".sentence")).to_have_attribute("data-status", "pending")
    held = "(on) => window.watched.live.receive({ type: 'status', status: { paused: on } })"
    for paused, step in ((False, 3), (True, 4), (False, 3)):
        page.evaluate(held, paused)
        board.expect_data(step=step, following="true")
    board.press(",")
    expect(board.root).to_have_attribute("data-following", "false")
    board.press(".")
    expect(board.root).to_have_attribute("data-following", "true")


def test_after_many_arrivals_running_requests_are_in_sight_and_keep_their_lanes(new_page, server):
    """Forty requests at once, four seats: each has a lane, and the others are in the waiting band."""
    url = server.url
    ask(url, *(f"student {number}" for number in range(40)), max_tokens=3)
    board = open_live(new_page(), url).wait()
    places: dict[int, int] = {}

    def look(step: int) -> None:
        assert steps(url, 2) == step
        board.expect_step(step)
        said = board.root.locator(".lanes canvas").get_attribute("data-shown") or ""
        shown = [int(request) for request in said.split()]
        log = trace(url)
        running = state_at(log, StepIndex(log), step)["running"]
        assert len(shown) == 4
        assert set(running) <= set(shown)
        assert all(shown.index(one) == places.get(one, shown.index(one)) for one in running)
        places.update({one: shown.index(one) for one in shown})

    for step in range(2, 26, 2):
        look(step)
    # By wall time it follows just so.
    board.press("x")
    expect(board.root).to_have_attribute("data-axis", "time")
    for step in range(26, 31, 2):
        look(step)
    expect(board.root).to_have_attribute("data-following", "true")
    expect_no_violation(board.page)


def test_a_page_that_was_not_shown_for_long_says_what_it_missed(new_page, server):
    """A browser gives a hidden page no frames; here the page sees that there are none."""
    page = new_page()
    hide = """
      const ask = window.requestAnimationFrame.bind(window);
      const waiting = [];
      window.hidden = true;
      window.requestAnimationFrame = (frame) => window.hidden ? waiting.push(frame) : ask(frame);
      window.show = () => { window.hidden = false; waiting.forEach(ask); };"""
    board = watch(page, server.url, "{ limit: 100 }", before=hide)
    expect(board.root).to_have_attribute("data-live", "live")
    ask(server.url, "Ada", "Bo", max_tokens=60)
    last = steps(server.url, 30)
    with Feed(server.url) as feed:
        feed.keyframe()
    page.evaluate("window.show()")
    expect_same_as_trace(board, server.url, last)
    dropped = board.root.locator(".live [data-about=dropped]")
    assert 50 < int(dropped.get_attribute("data-number") or 0) <= feed.seq
    assert_names(dropped.inner_text(), dropped.get_attribute("data-number"))
    expect_same_as_trace(board, server.url, steps(server.url, 1))


def test_a_server_with_a_key_is_opened_with_it(new_page):
    with start(paused=True, server={"api_key": "sesame"}) as server:
        page = new_page()
        page.goto(server.url)
        for key in ("wrong", "sesame"):
            page.locator("#key").fill(key)
            page.locator("#unlock button").click()
        expect(page.locator(".underglass")).to_have_attribute("data-live", "live")
        expect(page.locator("#key")).to_be_hidden()
        send(page, "Once")
        engine_button(page, "resume").click()
        expect(page.locator(".stream")).to_have_attribute("data-state", "length", timeout=30_000)


def test_the_docs_need_no_other_server(new_page, server):
    page = new_page()  # it fails a request off the machine
    page.goto(f"{server.url}/docs")
    # Swagger's page takes three seconds of CPU time to draw itself.
    operation = page.locator("[id^=operations-OpenAI][id$=_v1_completions_post]")
    expect(operation).to_be_visible(timeout=30_000)


def test_held_prompts_are_seen_and_start_together(new_page, server):
    page, other = new_page(), new_page()
    board = open_live(page, server.url)
    open_live(other, server.url)
    engine_button(page, "hold").click()
    held = page.locator("#held")
    expect(held).to_be_visible()
    ask(server.url, "Ada", "Bo", max_tokens=3, held=True)
    send(other, "Once", name="Cy")
    for name in ("Ada", "Bo", "Cy"):
        expect(held).to_contain_text(name)
        expect(other.locator("#held")).to_contain_text(name)
    expect(other.locator(".stream .words")).to_contain_text("held")
    expect(board.root).to_have_attribute("data-ready", "waiting")  # the engine has none of them
    release = engine_button(page, "release")
    expect(release).to_contain_text("3")
    release.click()
    expect(held).to_be_hidden()
    expect_same_as_trace(board, server.url, steps(server.url, 2))
    assert board.data("running") == "3"


def test_a_phone_joins_at_the_address_of_the_code_and_gets_an_answer(new_page):
    with held_server(host="0.0.0.0") as server:
        teacher = new_page()
        open_live(teacher, server.url)
        [first, *_] = get(server.url, "/join")["addresses"]
        expect(teacher.locator("#address")).to_have_text(first["address"])
        expect(teacher.locator("#qr")).to_have_attribute("alt", re.compile(re.escape(first["url"])))
        width = teacher.locator("#qr").evaluate("(image) => image.naturalWidth")
        assert width > 0, "the code is an image"
        # As the network's address is not reachable in every test environment, the loopback one is used.
        phone = new_page(width=390, height=844)
        open_live(phone, server.url)
        expect(phone.locator("#privacy")).to_contain_text(re.compile("nickname.*Without a key"))
        send(phone, "Once", name="Vera", tokens="4")
        me = phone.locator("#me")
        expect(me.locator("h2")).to_have_text("Vera")
        expect(me.locator(".own-sentence")).to_contain_text("waits")
        step = steps(server.url, 2)
        expect(me).to_have_attribute("data-step", str(step))
        expect(me.locator(".own-sentence")).to_contain_text("decodes")
        expect(phone.locator(".stream .text")).to_have_text("ab")
        expect(me.locator("dd").first).to_have_text("2 of 4")
        steps(server.url, 2)
        expect(me.locator(".own-sentence")).to_contain_text("limit of 4 tokens")
        expect(me.locator(".lane i")).to_have_count(2)  # its prefill and its decodes
        expect_no_violation(phone)


def test_the_phones_owner_reads_why_the_request_lost_its_blocks(new_page, server):
    phone = new_page(width=390, height=844)
    open_live(phone, server.url)
    ask(server.url, *"ABC", max_tokens=60)
    send(phone, "Once upon a time I", name="Vera", tokens="60")
    expect(phone.locator("#me h2")).to_have_text("Vera")
    assert run_until(server.url, "preemption")["request"] == 4  # it was admitted last
    sentence = phone.locator("#me .own-sentence")
    expect(sentence).to_contain_text("is preempted")
    log = trace(server.url)
    [lost] = log.of(Preempted)
    assert_names(sentence.inner_text(), read(log).requests.label[lost.needed_by])
    expect(phone.locator(".own-blocks li[data-kind=lost]")).not_to_have_count(0)


def test_prompts_are_chats_unless_raw_completion_is_chosen(new_page, server):
    page = new_page()
    open_live(page, server.url)
    for raw, route in ((False, "/v1/chat/completions"), (True, "/v1/completions")):
        with page.expect_response(f"**{route}") as answer:  # it begins once the request is queued
            send(page, "Once", raw=raw, tokens="3")
        assert ("messages" in answer.value.request.post_data_json) is not raw
        steps(server.url, 3)
        expect(page.locator(".stream").first).to_have_attribute(
            "data-state", "length", timeout=30_000
        )
        expect(page.locator(".stream .text").first).to_have_text("abc")
    chips = page.locator("#chips button")
    with page.expect_request("**/v1/completions") as asked:
        chips.first.click()
    assert asked.value.post_data_json["prompt"] == chips.first.inner_text()
    page.locator("#raw").uncheck()
    expect(chips.first).to_contain_text("?")


def test_the_page_says_that_the_trace_file_is_no_longer_written(new_page, tmp_path):
    path = tmp_path / "class.jsonl"
    with start(trace_file=str(path)) as server:
        page = new_page()
        open_live(page, server.url)
        line = page.locator("#trace-error")
        expect(line).to_be_hidden()
        limit_files(server, path.stat().st_size)
        send(page, "Once", tokens="4")
        expect(line).to_contain_text("class.jsonl is no longer written")
        expect_no_violation(page)


def test_without_text_in_the_trace_a_name_is_said_to_be_kept_out_and_is(new_page):
    with held_server(trace_text="off") as server:
        page = new_page()
        open_live(page, server.url)
        expect(page.locator("#privacy")).to_contain_text(re.compile("Neither.*names"))
        send(page, "Once", name="Quentin")
        expect(page.locator(".stream")).to_have_attribute("data-state", "waits")
        steps(server.url, 1)
        board = BoardOnPage(page).wait()
        expect_same_as_trace(board, server.url, 1)
        assert "Quentin" not in board.root.inner_text()
        assert "r1" in board.text(".sentence")


def test_on_a_phone_nothing_is_cut_off_and_targets_are_large_enough_in_the_dark_too(
    new_page, server
):
    page = new_page(width=390, height=844, color_scheme="dark")
    open_live(page, server.url)
    expect(page.locator("#hint")).to_be_visible()
    expect_no_violation(page)
    chips = page.locator("#chips").bounding_box()
    assert chips["height"] < 60, "the suggestions are in one row"
    send(page, "Once " * 12, name="Ada")
    expect(page.locator("#me")).to_be_visible()
    expect(page.locator("#hint")).to_be_hidden()
    steps(server.url, 2)
    for whole in (False, True):
        if whole:
            page.locator("#whole").click()
            BoardOnPage(page).wait()
        expect_no_violation(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        box, own = page.locator("#prompt").bounding_box(), page.locator("#me").bounding_box()
        assert box["y"] + box["height"] <= 844 + 1
        assert whole or own["y"] < 200
        answer, bar = page.locator(".stream").bounding_box(), page.locator("#ask").bounding_box()
        assert whole or answer["y"] + answer["height"] <= bar["y"], "the answer is not covered"
        boxes = "#ask :is(input:not([type=checkbox]), textarea, button)"
        targets = page.locator(f"header button, #mine button, #whole, {boxes}")
        for element in targets.locator("visible=true").all():
            one = element.bounding_box()
            assert one is None or one["height"] >= 44, element.inner_text()
