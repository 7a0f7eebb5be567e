"""Prompt lookup: its drafts, and that they change the number of steps but no token."""

from hypothesis import given
from hypothesis import strategies as st

from engine import Engine, EngineConfig, SamplingParams
from engine.events import vocabulary as v
from engine.scheduling.request import Request
from engine.speculation.prompt_lookup import PromptLookup
from tests.facts import raises_naming

PROMPTS = [
    "Once upon a time, a fox called Theo lived near a quiet river.",
    "One day Mia found a golden key. One day Mia found",
    "What does the prefix cache do?",
]


def propose(tokens: list[int], **settings: int) -> list[int]:
    request = Request(1, tokens, [""] * len(tokens), SamplingParams())
    return PromptLookup(**settings).propose(request)


def test_it_proposes_what_followed_the_latest_longest_match() -> None:
    assert propose([1, 2, 3, 9, 8, 1, 2, 3]) == [9, 8, 1, 2]
    assert propose([1, 2, 7, 1, 2, 8, 1, 2], length=1) == [8]
    assert propose([5, 1, 2, 7, 4, 1, 2, 8, 5, 1, 2], length=1) == [7]  # three match, not two
    assert propose([1, 2, 3, 4]) == []
    assert propose([1]) == []
    # A text that repeats itself quickly is drafted whole.
    assert propose([7, 7, 7, 7, 7, 7, 7, 7], length=4) == [7, 7, 7, 7]
    assert propose([1, 2, 1, 2, 1, 2], length=4, longest=2) == [1, 2, 1, 2]
    for settings in ({"length": 0}, {"shortest": 0}, {"longest": 1}):
        with raises_naming(ValueError, *settings):
            PromptLookup(**settings)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40))
def test_a_proposal_stands_in_the_text_after_a_match(tokens: list[int]) -> None:
    drafts = propose(tokens, length=3)
    assert len(drafts) <= 3
    if drafts:
        found = tokens[-2:] + drafts
        assert any(tokens[i : i + len(found)] == found for i in range(len(tokens)))


def test_speculation_takes_fewer_rows_and_changes_no_token() -> None:
    outputs, rows_computed = [], []
    for drafter in (None, PromptLookup()):
        engine = Engine.load("bundled", EngineConfig(), drafter=drafter)
        params = SamplingParams(max_tokens=50, temperature=0.7, ignore_eos=True)
        done = engine.complete(PROMPTS, params, progress=False)
        outputs.append([completion.token_ids for completion in done])
        scheduled = engine.log.of(v.StepScheduled)
        rows_computed.append(sum(len(event.rows) for event in scheduled))
        if drafter is not None:
            rows = [row for event in engine.log.of(v.StepFinished) for row in event.tokens]
            assert sum(row.accepted for row in rows) > 0
            assert engine.log[0].classes["drafter"] == "PromptLookup"
    assert outputs[0] == outputs[1]
    assert rows_computed[1] < rows_computed[0]
