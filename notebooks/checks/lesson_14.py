"""Lesson 14: which drafts are kept, so that the text has the model's own distribution?"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from checks.answer import Answer
from checks.broken import Broken, Promises
from checks.guard import call, watched
from checks.judging import counted, listed, whole
from engine.core.speculation.verification import Pick, Verifier

ANSWERS = {
    "further": Answer(
        2.8,
        {
            5.1: "Twice as many drafts would bring twice the tokens if each draft counted by itself.",
            3.8: "Half as many again seems careful, but the far drafts hardly ever count.",
            2.5: "That's nearly right, but now and then five or six drafts in a row are right.",
        },
    ),
    "busy": Answer(
        "fewer",
        {
            "45% more, as before": "The number of steps falls as before, but here a step with 40 "
            "tokens is much longer than a step with 8.",
            "a few more": "That's true of one draft each, but of four, more are dropped than accepted.",
            "no change": "Gain and cost would have to be equal, but the dropped drafts cost more.",
        },
        source="The run",
        fits=lambda ratio: ratio < 0.95,
    ),
    "dogs": Answer(
        "less often",
        {
            "as often as by the model": "The model draws only the replacements, and they aren't all.",
            "more often": "The drafter likes dogs more than the model does. So what does the rule do "
            "with its dogs?",
        },
        source="The count",
        fits=lambda ratio: ratio < 0.95,
    ),
}
HINTS = (
    "The chance of draft j is p[j][draft] / q[j][draft], and the draft is kept if uniforms[j] is below "
    "that chance.",
    "At the first rejection the answer is complete: the drafts before it, and pick(rest(p[j], q[j])). "
    "If the loop ends without a rejection, one more token is drawn from p[-1].",
)


class Promise(Promises):
    """The promises that the check tests."""

    TOKENS = "the answer is a list of tokens"
    OWN_TOKEN = "every answer ends with a token of the model's own, from pick()"
    AT_MOST_ONE_MORE = "the answer has at most one token more than there are drafts"
    STOPS_AT_REJECTION = "after the first rejected draft comes one token, and no more"
    KEPT = "a draft is kept if its number is below its chance"
    REJECTED = "a draft is rejected if its number is not below its chance"
    ONE_WEIGHT_EACH = "pick() gets a weight for each word of the vocabulary"
    WEIGHTS = "weights are 0 or more, and not all of them 0"
    MODELS_VOICE = "the text has the model's own distribution"
    BONUS = "the token after the last draft has the model's distribution at its position"


Accept = Callable[..., list[int]]
Row = tuple[float, ...]

WORDS = ("cat", "dog", "owl")
CHANCES = 10  # equally spaced numbers stand for a uniform random number
SLACK = 1e-9


@dataclass(frozen=True)
class OneDraft:
    """One position: model's and drafter's probabilities, and the model's for the position after it."""

    p: Row
    q: Row
    after: Row

    def __str__(self) -> str:
        return (
            f"One draft. The drafter's probabilities: {shares_text(self.q)}. The model's: "
            f"{shares_text(self.p)}; after the draft: {shares_text(self.after)}."
        )


@dataclass(frozen=True)
class Drafted:
    """One call: drafts, and the random number that decides on each."""

    p: tuple[Row, ...]
    q: tuple[Row, ...]
    drafts: tuple[int, ...]
    uniforms: tuple[float, ...]

    def __str__(self) -> str:
        each = [
            f"{WORDS[draft]} (model {p[draft]:.0%}, drafter {q[draft]:.0%}, number {u:.2f})"
            for draft, p, q, u in zip(self.drafts, self.p, self.q, self.uniforms, strict=False)
        ]
        return f"{counted(len(each), 'draft')}: {listed(each)}."

    @property
    def kept(self) -> int:
        """The number of drafts before the first whose number is not below its chance."""
        for index, (draft, number) in enumerate(zip(self.drafts, self.uniforms, strict=True)):
            if number >= self.p[index][draft] / self.q[index][draft]:
                return index
        return len(self.drafts)


class YourRule(Verifier):
    """A learner's rule, as a verifier. The engine's drafters are always sure: q = 1."""

    def __init__(self, rule: Accept) -> None:
        self._rule = rule

    def accept(
        self, p: list[list[float]], drafts: list[int], numbers: list[float], pick: Pick
    ) -> list[int]:
        """Return the learner's answer."""
        q = [[float(token == draft) for token in range(len(p[0]))] for draft in drafts]
        return self._rule(p, q, drafts, numbers, pick)


def adapt(accept: Accept | None) -> Verifier | None:
    """Return the learner's rule as a verifier, or None until it passes."""
    return YourRule(accept) if accept else None


def shares_text(row: Sequence[float]) -> str:
    """ "cat 50%, dog 30% and owl 20%"."""
    return listed(f"{word} {share:.0%}" for word, share in zip(WORDS, row, strict=False))


def cases() -> list[OneDraft | Drafted]:
    """Return single drafts over two and three words, then calls with up to three drafts."""
    chance = random.Random(10)
    one_drafts = [
        OneDraft(p, q, after)
        for words in (2, 3)
        for p, q in product(_rows(words), repeat=2)
        if _is_even(p, q)
        for after in [chance.choice(_rows(words))]
    ]
    two, three = ([one for one in one_drafts if len(one.p) == words] for words in (2, 3))
    # The lesson's own example is the first of three words.
    own = [one for one in three if (one.p, one.q) == ((0.5, 0.3, 0.2), (0.2, 0.6, 0.2))]
    short = sorted((_drafted(1 + index % 3, chance) for index in range(400)), key=_length)
    return [
        *chance.sample([one for one in two if one.p != one.q], 5),
        *own,
        *chance.sample(three, 5),
        *short,
    ]


def _rows(words: int) -> list[Row]:
    """Return all distributions in tenths."""
    rows = [row for row in product(range(11), repeat=words) if sum(row) == 10]
    return [tuple(share / 10 for share in row) for row in rows]


def _is_even(p: Row, q: Row) -> bool:
    """Return whether each chance is a multiple of 1/10, which ten equally spaced numbers can hit."""
    more = [max(0.0, a - b) for a, b in zip(p, q, strict=True)]
    shares = [min(1.0, a / b) for a, b in zip(p, q, strict=True) if b]
    shares += [one / sum(more) for one in more] if sum(more) else []
    return all(abs(share * CHANCES - round(share * CHANCES)) < SLACK for share in shares)


def _drafted(count: int, chance: random.Random) -> Drafted:
    rows = _rows(3)
    p, q = ([chance.choice(rows) for _ in range(count + 1)] for _ in "pq")
    if chance.random() < 0.3:  # greedy: the model is sure as well
        p = [_sure(chance) for _ in p]
        q = [_sure(chance) for _ in q]
    q = q[:count]
    drafts = [chance.choices(range(3), row)[0] for row in q]
    uniforms = []
    for draft, mine, theirs in zip(drafts, p, q, strict=False):
        edge = min(1.0, mine[draft] / theirs[draft])
        near = [number for number in (max(edge - 0.01, 0), edge + 0.01) if number < 1]
        # Mostly below the edge, or later drafts would hardly ever count. At an edge of 0: equal to it.
        uniforms.append(round(chance.choices(near, (3, 1)[: len(near)])[0], 6))
    return Drafted(tuple(p), tuple(q), tuple(drafts), tuple(uniforms))


def _sure(chance: random.Random) -> Row:
    token = chance.randrange(2)
    return tuple(float(one == token) for one in range(3))


def _length(one: Drafted) -> int:
    return len(one.drafts)


def attempt(accept: Accept, case: OneDraft | Drafted) -> None:
    """Check that an answer has drafts in order, then one token, and the model's distribution."""
    if isinstance(case, Drafted):
        _attempt_call(accept, case)
    else:
        _attempt_one_draft(accept, case)


def _attempt_call(accept: Accept, case: Drafted) -> None:
    p, q = [list(row) for row in case.p], [list(row) for row in case.q]

    def likeliest(weights: Iterable[float]) -> int:
        shares = _weights(weights, len(p[0]))
        return shares.index(max(shares))

    answer = call(accept, p, q, list(case.drafts), list(case.uniforms), likeliest)
    ids = _leading(answer, list(case.drafts), len(p[0]))
    kept = len(ids) - 1
    if ids == list(case.drafts[: case.kept]):
        raise _no_own_token(listed(WORDS[one] for one in ids))
    if kept < case.kept:
        draft = case.drafts[kept]
        ratio = case.p[kept][draft] / case.q[kept][draft]
        raise Promise.KEPT.broken(
            f"You kept {counted(kept, 'draft')} and drew {WORDS[ids[-1]]}.",
            f"Draft {kept + 1}, {WORDS[draft]}: its number is {case.uniforms[kept]:.2f}, and the "
            f"model's probability is {ratio:.3g} times the drafter's.",
        )
    if kept > case.kept:
        draft = case.drafts[case.kept]
        raise Promise.REJECTED.broken(
            f"You kept {counted(kept, 'draft')}.",
            f"Draft {case.kept + 1}, {WORDS[draft]}: its number is {case.uniforms[case.kept]:.2f}; "
            f"the model gives it {case.p[case.kept][draft]:.0%}, the drafter "
            f"{case.q[case.kept][draft]:.0%}.",
        )
    _check_last_token(case, ids[-1])


def _check_last_token(case: Drafted, token: int) -> None:
    """Check that the token after the kept drafts can be drawn at its position."""
    kept = case.kept
    if kept == len(case.drafts):
        if case.p[-1][token] == 0:
            raise Promise.BONUS.broken(
                f"You kept all drafts, and then drew {WORDS[token]}.",
                f"There the model has {shares_text(case.p[-1])}: the last row of p.",
            )
    elif case.p[kept][token] <= case.q[kept][token]:
        raise Promise.MODELS_VOICE.broken(
            f"You rejected draft {kept + 1}, and then drew {WORDS[token]}.",
            f"At that position the model has {shares_text(case.p[kept])}, the drafter "
            f"{shares_text(case.q[kept])}. Of which words does the model have more?",
        )


def _weights(weights: Iterable[float], words: int) -> list[float]:
    """Return the weights given to `pick`. Raises Broken if no token can be drawn from them."""
    shares = [float(one) for one in weights]
    if len(shares) != words:
        raise Promise.ONE_WEIGHT_EACH.broken(
            f"You gave {counted(len(shares), 'weight')} to pick().",
            f"There are {words} words here.",
        )
    if min(shares) < 0 or not 0 < sum(shares) < float("inf"):
        look = "The drafter may give a word more than the model does. What is left of it then?"
        if not any(shares):
            look = (
                "After a rejection, the model has more of some word at that position. Which rows "
                "of p and q do you compare?"
            )
        raise Promise.WEIGHTS.broken(
            f"You gave the weights {[round(one, 3) for one in shares]} to pick().", look
        )
    return shares


def _leading(answer: Any, drafts: list[int], words: int) -> list[int]:
    """Return the answer if it is some leading drafts and one token. Raises Broken otherwise."""
    if not isinstance(answer, list | tuple) or not all(
        whole(one) in range(words) for one in answer
    ):
        raise Promise.TOKENS.broken(
            f"You returned {answer!r}.",
            f"Tokens are numbers from 0 to {words - 1}; pick() gives one.",
        )
    ids = [int(one) for one in answer]
    words_text = listed(WORDS[one] for one in ids) if ids else "nothing"
    if not ids:
        raise _no_own_token(words_text)
    if len(ids) > len(drafts) + 1:
        raise Promise.AT_MOST_ONE_MORE.broken(
            f"You returned {words_text}.",
            f"The model has probabilities for {len(drafts) + 1} positions.",
        )
    wrong = next((i for i in range(len(ids) - 1) if ids[i] != drafts[i]), None)
    if wrong is not None:
        raise Promise.STOPS_AT_REJECTION.broken(
            f"You returned {words_text}. Drafts: {listed(WORDS[one] for one in drafts)}.",
            f"Token {wrong + 2} comes after a rejected word.",
        )
    return ids


def _no_own_token(said: str, *, drawn: bool = False) -> Broken:
    if drawn:
        return Promise.OWN_TOKEN.broken(
            f"You returned {said}, and did not call pick().",
            "That word is left to chance. Which weights does it have?",
        )
    return Promise.OWN_TOKEN.broken(
        f"You returned {said}.",
        "The model has probabilities after the last draft as well. Without that token, a call whose "
        "drafts are all rejected would return nothing.",
    )


def _no_draft_kept(case: OneDraft) -> Broken:
    word = max(range(len(case.p)), key=lambda one: min(case.p[one], case.q[one]))
    chance = min(1.0, case.p[word] / case.q[word])
    return Promise.OWN_TOKEN.broken(
        "You returned one word, whatever the draft.",
        f"The chance of a draft {WORDS[word]} is {chance:.0%} here. If it is kept, {WORDS[word]} "
        "and one more word are returned.",
    )


@dataclass
class _Outcome:
    """The probabilities of the answers, over all drafts and all random numbers."""

    first: list[float]
    kept: list[float]
    after: list[float]  # the token after a draft that was kept
    undecided: list[int]  # drafts that were both kept and rejected with the same number


def _attempt_one_draft(accept: Accept, case: OneDraft) -> None:
    outcome = _outcome_of(accept, case)
    words = range(len(case.p))
    if outcome.undecided:
        raise Promise.KEPT.broken(
            f"A draft {WORDS[outcome.undecided[0]]} was both kept and rejected, with the same number.",
            "uniforms[j] is the number that decides on draft j. Do you use it?",
        )
    if all(abs(outcome.first[word] - case.p[word]) < SLACK for word in words):
        total = sum(outcome.kept)
        if total == 0 and _shared(case) > 0:
            raise _no_draft_kept(case)
        if any(abs(outcome.after[word] - total * case.after[word]) > SLACK for word in words):
            shares = [share / total for share in outcome.after]
            raise Promise.BONUS.broken(
                f"After a kept draft, your words were {shares_text(shares)}.",
                "p has one row more than q. Which row did you draw from?",
            )
        return
    raise Promise.MODELS_VOICE.broken(
        f"Over all drafts and random numbers, the first word is {shares_text(outcome.first)}; the "
        f"model's distribution is {shares_text(case.p)}.",
        _why_another_voice(case, outcome),
    )


def _why_another_voice(case: OneDraft, outcome: _Outcome) -> str:
    wrong = [
        word
        for word, (p, q) in enumerate(zip(case.p, case.q, strict=True))
        if q and abs(outcome.kept[word] - min(p, q)) > SLACK
    ]
    if not wrong:
        return (
            "Drafts are kept as often as they should be. So the word drawn after a rejection is "
            f"wrong. Kept drafts already give {shares_text(outcome.kept)}. What is missing?"
        )
    word = max(wrong, key=lambda one: case.q[one])
    if all(abs(mine - its) <= SLACK for mine, its in zip(outcome.first, case.q, strict=True)):
        return "That is the drafter's distribution; the model's has no influence."
    return (
        f"A draft {WORDS[word]} was kept in {outcome.kept[word] / case.q[word]:.0%} of the cases. "
        f"The drafter gives it {case.q[word]:.0%}, the model {case.p[word]:.0%}."
    )


def _shared(case: OneDraft) -> float:
    return sum(min(p, q) for p, q in zip(case.p, case.q, strict=True))


def _outcome_of(accept: Accept, case: OneDraft) -> _Outcome:
    words = len(case.p)
    outcome = _Outcome([0.0] * words, [0.0] * words, [0.0] * words, [])
    decided: dict[tuple[int, float], bool] = {}
    numbers = [(index + 0.5) / CHANCES for index in range(CHANCES)]
    drafts = [word for word in range(words) if case.q[word]]
    with watched(accept):
        for draft, u, v in product(drafts, numbers, numbers):
            picked: list[int] = []

            def pick(weights: Iterable[float], v: float = v, into: list[int] = picked) -> int:
                shares = _weights(weights, words)
                sums = [sum(shares[: word + 1]) for word in range(words)]
                into.append(next(word for word in range(words) if v * sums[-1] < sums[word]))
                return into[-1]

            answer = accept([list(case.p), list(case.after)], [list(case.q)], [draft], [u], pick)
            ids = _leading(answer, [draft], words)
            if not picked:
                raise _no_own_token(listed(WORDS[one] for one in ids), drawn=ids != [draft])
            if decided.setdefault((draft, u), len(ids) > 1) != (len(ids) > 1):
                outcome.undecided.append(draft)
            weight = case.q[draft] / CHANCES**2
            outcome.first[ids[0]] += weight
            if len(ids) > 1:
                outcome.kept[draft] += weight
                outcome.after[ids[1]] += weight
    return outcome
