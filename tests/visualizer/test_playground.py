"""The playground in Python: settings start runs, one at a time, and the run before stays."""

import asyncio
import html
import re
import threading
from itertools import product

import pytest

from engine import Cost, simulate
from engine.core.log.vocabulary import Preempted
from engine.simulation.scenarios import scenario
from tests.facts import assert_names, raises_naming
from visualizer import playground, read
from visualizer.playing import rerun
from visualizer.playing.game import Game
from visualizer.playing.people import People
from visualizer.playing.playground import Playground
from visualizer.playing.questions import MEASURES, PAUSE, QUESTIONS, THROUGHPUT
from visualizer.playing.rerun import Setup, SetupError
from visualizer.playing.words import cost, sentence


def words(text: str) -> str:
    return html.unescape(re.sub("<[^>]+>", " ", text))


def move(p: Playground, **settings: object) -> None:
    """Move controls as a page does: it sends the values of all."""
    p._on_message(p, {"settings": p.settings | settings}, [])


@pytest.mark.parametrize("number", range(len(QUESTIONS) - 1))
def test_a_question_is_open_at_its_start_and_some_settings_of_the_four_controls_answer_it(number):
    game = Game(number)
    assert not game.is_reached
    options = {
        "max_batch_size": (4, 7),
        "token_budget": (32, 64, 128, 256),
        "max_kv_tokens": (16 * 40, 16 * 64),
        "policy": ("fcfs", "priority"),
    }
    reached = 0
    for values in product(*options.values()):
        game = Game(number)
        game.change(dict(zip(options, values, strict=True)))
        reached += game.is_reached
    assert 0 < reached < 16  # neither out of reach nor at each turn


def test_the_first_page_asks_and_a_second_output_has_it_for_readers_without_a_kernel():
    p = playground()
    page, _ = p._saved()
    assert p.page in page["text/html"]
    assert QUESTIONS[0].text in words(p.page)
    assert_names(words(p.page), 500, 222)  # the values of both goals
    assert p.previous is None
    assert repr(p).startswith("Playground(token_budget=64, ")
    assert repr(p) == repr(playground())


def test_a_control_runs_what_it_says_and_the_run_before_stays():
    p = playground(token_budget=48)
    first = p.log
    move(p, max_batch_size=2)
    assert p.settings["max_batch_size"] == 2
    assert p.previous is first
    again = simulate(p.setup.traffic.workload, p.setup.config, cost=Cost(10, 0.25))
    assert p.log.deterministic() == again.deterministic()
    assert "before: 6" in p.page and 'class="ghost"' in p.page
    before = p.log
    p.set(token_budget=16, shared=0)
    assert p.previous is before
    assert_names(words(p.page), "16 tokens in a step and shared 0", "before: 48", "before: 50")


OTHER_VALUES = {
    "token_budget": 16, "max_batch_size": 3, "max_kv_tokens": 512, "block_size": 16,
    "policy": "sjf", "batching": "static", "chunked_prefill": False, "prefix_cache": "off",
    "preemption": False, "requests": 5, "rate": 10, "prompt_tokens": 50, "output_tokens": 8,
    "shared": 0, "seed": 7,
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER_VALUES)
def test_every_control_changes_the_run(name):
    p = playground(max_kv_tokens=400, max_batch_size=8, token_budget=96)
    assert f'name="{name}"' in p.page
    move(p, **{name: OTHER_VALUES[name]})
    assert p.settings[name] == OTHER_VALUES[name]
    assert p.log.to_bytes() != p.previous.to_bytes()


def test_a_sentence_and_its_cost_say_what_the_logs_do():
    game = Game(0)
    game.change({"token_budget": 256})
    past, now = (run.people for run in game.runs)
    by_name = {row.label: row for row in read(now.log).request_rows}
    old = {row.label: row for row in read(past.log).request_rows}
    sooner = old["Ada"].ttft_ms - by_name["Ada"].ttft_ms
    # Ada waits for a seat until the step that admits her.
    waited = sum(s.duration for s in now.named("Ada").time.spans if s.cause == "batch_full") / 1000
    told = words(sentence(now, past, ["256 tokens in a step"], "Ada"))
    assert_names(told, f"{sooner:.0f} ms sooner", f"{waited:.0f} ms are a wait for a seat")
    pauses = [f"{PAUSE.of(people.log):.0f}" for people in (past, now)]
    assert_names(words(cost(now, past)), *pauses)
    assert "nothing" in cost(now, now)
    for person in now.all:
        assert person.ttft == pytest.approx(by_name[person.name].ttft_ms)
        assert person.end - person.arrived == pytest.approx(by_name[person.name].e2e_ms)


def test_measures_are_those_of_the_log():
    one = scenario("preemption")
    log = simulate(one.workload, one.config, cost=Cost(10, 0.25))
    latest, median, pause, throughput, preemptions = (one.of(log) for one in MEASURES)
    rows = read(log).requests
    assert (latest, median) == (rows.ttft_ms.max(), rows.ttft_ms.median())
    assert pause == read(log).tokens.gap_ms.max()
    ends = read(log).steps.start_ms + read(log).steps.duration_ms
    seconds = (ends.iloc[-1] - read(log).steps.start_ms.iloc[0]) / 1000
    assert throughput == pytest.approx(rows.output_tokens.sum() / seconds)
    assert preemptions == 1
    assert len(People(log).all) == len(rows)


def test_an_impossible_setting_is_reported_and_the_last_run_stays():
    p = playground(max_kv_tokens=224)
    log = p.log
    move(p, max_kv_tokens=64)
    error = re.search('data-part="message" role="alert">(.+?)</p>', p.page)
    assert_names(error[1], "max_kv_tokens")
    assert p.log is log
    with raises_naming(SetupError, "max_kv_tokens"):
        p.set(max_kv_tokens=16)
    assert p.settings["max_kv_tokens"] == 224
    # Moving back keeps the runs and takes the message away.
    move(p)
    assert p.log is log and 'role="alert"></p>' in p.page


def test_there_is_one_run_at_a_time_and_the_last_wish_counts(monkeypatch):
    served, running = [], threading.Lock()
    serve = Setup.run

    def counted(self: Setup) -> rerun.Run:
        assert running.acquire(blocking=False), "two runs at a time"
        served.append(self.config.token_budget)
        try:
            return serve(self)
        finally:
            running.release()

    monkeypatch.setattr(Setup, "run", counted)

    async def drag() -> Playground:
        p = playground()
        for budget in (40, 30, 20):
            move(p, token_budget=budget)
        while len(served) < 2:
            await asyncio.sleep(0)
        move(p, token_budget=12)  # while a run is in flight: it is run after that
        move(p, token_budget=14)
        await p.settled()
        return p

    p = asyncio.run(drag())
    assert served == [64, 20, 14]
    assert p.settings["token_budget"] == 14


def test_a_given_workload_is_served_and_has_no_controls_for_traffic():
    one = scenario("preemption")
    p = playground(one.config, one.workload)
    assert p.log.deterministic() == one.run().deterministic()
    assert 'name="requests"' not in p.page
    p.set(max_kv_tokens=16 * 8)
    assert not p.log.of(Preempted)
    with raises_naming(SetupError, "requests"):
        p.set(requests=3)


def test_a_run_that_would_take_too_long_is_truncated_and_says_so(monkeypatch):
    monkeypatch.setattr(rerun, "SIMULATED_TOKENS", 300)
    p = playground(requests=14)
    left = 14 - len(read(p.log).requests)
    assert 0 < left < 14
    assert_names(words(p.page), f"{left} requests were left out")
    total = read(p.log).requests.prompt_tokens.sum() + read(p.log).requests.max_tokens.sum()
    assert total <= 300


def test_the_model_serves_the_same_requests():
    p = playground(requests=3, output_tokens=4)
    p.set(model=True)
    before, after = read(p.previous).requests, read(p.log).requests
    assert before.label.tolist() == after.label.tolist()
    assert before.output_tokens.tolist() == after.output_tokens.tolist()
    assert p.log[0].model["parameters"] > 0
    assert THROUGHPUT.of(p.log) > 0
