"""Another engine's log in Python: unknown is never 0, inferred statements carry a half dot."""

import re

import pytest

from engine.core.log import vocabulary as v
from engine.simulation.facts import FACTS, Fact
from tests.facts import assert_names, raises_naming
from tests.visualizer.foreign import ENGINE, NO_TEXT, RECORDER, foreign, foreign_label
from tests.visualizer.storytellers import storytellers
from visualizer import compare, read
from visualizer.reading.knowledge import WORDS
from visualizer.reading.rows.unknown import REQUEST_FACTS, STEP_FACTS, TOKEN_FACTS
from visualizer.reading.story import names_of
from visualizer.reading.summary import summary
from visualizer.reading.why import why

HALF_DOT = WORDS["half_dot"].strip()
CAUSES: tuple[Fact, ...] = ("waiting_reasons", "preemption_causes", "eviction_causes")


@pytest.fixture(scope="module")
def own():
    return storytellers(prefix_cache="hash")


@pytest.fixture(scope="module")
def log(own):
    return foreign(own, gap_after=20)


def rows_of(text: str) -> dict[str, str]:
    return {line[:13].strip(): line[13:] for line in text.splitlines()}


def test_a_log_says_what_it_knows(own, log):
    assert [read(log).knowledge.of(fact) for fact in CAUSES] == ["inferred"] * 3
    assert read(log).knowledge.facts("unknown") == list(NO_TEXT)
    assert_names(
        repr(read(log).knowledge), ENGINE, RECORDER, *(WORDS["facts"][fact] for fact in FACTS)
    )
    assert read(own).knowledge.facts("recorded") == list(FACTS)
    with raises_naming(ValueError, "weather"):
        read(log).knowledge.of("weather")  # type: ignore[arg-type]
    assert set(WORDS["facts"]) == set(FACTS)


def test_the_summary_names_the_engine_and_the_gap(own, log):
    rows = rows_of(summary(log))
    assert_names(rows.pop("source"), ENGINE, RECORDER)
    assert_names(rows.pop("gaps"), 7, "disk")
    assert rows.pop("limit").replace(WORDS["half_dot"], "") == read(own).regimes.sentence
    assert rows == {k: text for k, text in rows_of(summary(own)).items() if k != "limit"}


def test_the_summary_of_a_log_that_knows_nothing_has_no_numbers(own):
    rows = rows_of(summary(foreign(own, unknown=FACTS, inferred=())))
    del rows["source"], rows["steps"]
    assert set(rows.values()) == {WORDS["unknown"]}


@pytest.mark.parametrize("fact", FACTS)
def test_columns_of_an_unknown_fact_are_missing_and_all_others_stay(own, fact):
    without = foreign(own, unknown=(fact,), inferred=())
    for name, columns in (
        ("requests", REQUEST_FACTS),
        ("steps", STEP_FACTS),
        ("tokens", TOKEN_FACTS),
    ):
        before, after = getattr(read(own), name), getattr(read(without), name)
        lost = {column for column, facts in columns.items() if fact in facts}
        assert all(after[column].isna().all() for column in lost)
        own_labels = ("label", "logprob")  # the helper replaces these
        times = {c for c in before if fact in ("arrivals", "step_times") and c.endswith("_ms")}
        for column in before.columns.difference([*lost, *own_labels, *times]):
            assert before[column].equals(after[column]), column


def test_why_answers_every_question_about_a_log_without_tokens_and_causes(own):
    log = foreign(own, unknown=(*NO_TEXT, *CAUSES), inferred=())
    for step in read(log).steps.index[::4]:
        for request in read(log).requests.index:
            assert "r-1" not in why(log, request, step)


def test_why_marks_inferred_reasons_only(own, log):
    waits = next(event for event in log.of(v.StepScheduled) if event.blocked is not None)
    steps = [event.step for event in log.of(v.StepStarted)]
    step = steps[log.of(v.StepScheduled).index(waits)]
    assert HALF_DOT in why(log, waits.blocked.request, step)
    assert HALF_DOT not in why(own, waits.blocked.request, step)
    preempted = log.of(v.Preempted)[0].request
    assert HALF_DOT in why(log, preempted, int(read(log).steps.query("preempted > 0").index[0]))


def test_why_mentions_a_gap_before_the_step_only(log):
    assert_names(why(log, 1, 21), 7, "disk")
    assert "disk" not in why(log, 1, 22)


def test_names_are_short_unique_and_prefixes_of_the_number(log):
    names = names_of(log)
    assert len(set(names.values())) == len(names)
    for request, label in read(log).requests.label.items():
        assert re.fullmatch("[0-9a-f]{4,6}", names[int(str(request))])
        assert label.startswith(f"cmpl-{names[int(str(request))]}")
    assert read(log).requests.label[1] == foreign_label(1)


def test_equal_runs_of_two_engines_do_not_differ(own, log):
    comparison = compare(own, log, ("ours", "theirs"))
    assert comparison.first_difference is None
    assert comparison.settings == {}
    assert comparison.page_facts()["unmatched"] == [[], []]
    assert_names(comparison.note, ENGINE, *(WORDS["facts"][fact] for fact in NO_TEXT))
    assert (comparison.requests.cached_tokens_change == 0).all()


def test_a_decision_that_differs_is_found_across_engines(own, log):
    other = storytellers(prefix_cache="hash", max_kv_tokens=200)
    comparison = compare(other, log)
    assert comparison.settings["num_blocks"] == (25, 40)
    assert comparison.step is not None
    with_tokens = foreign(own, unknown=())
    assert compare(other, with_tokens).step == compare(other, own).step


def test_a_run_without_causes_is_compared_without_them(own):
    less = foreign(own, unknown=(*NO_TEXT, *CAUSES), inferred=())
    assert compare(own, less).first_difference is None
    assert compare(foreign(own), less).first_difference is None


def test_of_a_simulation_the_note_names_the_few_facts_that_are_recorded(own):
    recorded: tuple[Fact, ...] = ("settings", "arrivals")
    guessed = foreign(own, inferred=[fact for fact in FACTS if fact not in recorded], unknown=())
    note = compare(own, guessed, names=("run", "replay")).note
    assert note is not None
    assert "Inferred in replay: all facts except settings, arrivals." in note
    assert not any(WORDS["facts"][fact] in note for fact in ("queue", "evictions", "step_times"))
