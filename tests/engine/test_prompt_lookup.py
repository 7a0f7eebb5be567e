"""Prompt lookup: its drafts, and that they change the number of steps but no token."""

from hypothesis import given
from hypothesis import strategies as st

from engine import SamplingParams
from engine.core.request import Request
from engine.extensions.prompt_lookup import PromptLookup
from tests.facts import raises_naming


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
