"""Lesson 10: which guesses are kept, so that the text has the model's own distribution?"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from checks.broken import Broken
from checks.guard import call, watched
from checks.judging import counted, judge, listed
from engine.speculation.verification import Pick, Verifier

Accept = Callable[..., list[int]]
Row = tuple[float, ...]

WORDS = ("cat", "dog", "owl")
CHANCES = 10  # equally spaced numbers stand for all of chance
SLACK = 1e-9


@dataclass(frozen=True)
class Voice:
    """One place: what model and helper think of each word, and the model of the word after it."""

    p: Row
    q: Row
    after: Row

    def __str__(self) -> str:
        return (
            f"One draft. The helper says {told(self.q)}. The model says {told(self.p)}, and behind "
            f"the draft {told(self.after)}."
        )


@dataclass(frozen=True)
class Drafted:
    """One call: drafts, and the number that decides on each."""

    p: tuple[Row, ...]
    q: tuple[Row, ...]
    drafts: tuple[int, ...]
    uniforms: tuple[float, ...]

    def __str__(self) -> str:
        each = [
            f"{WORDS[draft]} (model {p[draft]:.0%}, helper {q[draft]:.0%}, number {u:.2f})"
            for draft, p, q, u in zip(self.drafts, self.p, self.q, self.uniforms, strict=False)
        ]
        return f"{counted(len(each), 'draft')}: {listed(each)}."

    @property
    def kept(self) -> int:
        """How many drafts stand before the first whose number is not below its chance."""
        for place, (draft, number) in enumerate(zip(self.drafts, self.uniforms, strict=True)):
            if number >= self.p[place][draft] / self.q[place][draft]:
                return place
        return len(self.drafts)


class YourRule(Verifier):
    """What a learner wrote, as the engine asks for it. Its drafters are always sure: q = 1."""

    def __init__(self, rule: Accept) -> None:
        self._rule = rule

    def accept(
        self, p: list[list[float]], drafts: list[int], numbers: list[float], pick: Pick
    ) -> list[int]:
        """The learner's answer."""
        q = [[float(token == draft) for token in range(len(p[0]))] for draft in drafts]
        return self._rule(p, q, drafts, numbers, pick)


def check(accept: Accept) -> Verifier | None:
    """Say how `accept` does, and give the engine a verifier that asks it; None, its own, else."""
    verdict = judge(accept, cases(), attempt)
    print(verdict)
    return YourRule(accept) if verdict.passed else None


def told(row: Sequence[float]) -> str:
    """ "cat 50%, dog 30% and owl 20%"."""
    return listed(f"{word} {share:.0%}" for word, share in zip(WORDS, row, strict=False))


def cases() -> list[Voice | Drafted]:
    """Places of two words and of three, as far as a few numbers can stand for all of chance."""
    chance = random.Random(10)
    voices = [
        Voice(p, q, after)
        for words in (2, 3)
        for p, q in product(_rows(words), repeat=2)
        if _is_even(p, q)
        for after in [chance.choice(_rows(words))]
    ]
    two, three = ([one for one in voices if len(one.p) == words] for words in (2, 3))
    # The lesson's own example is the first of three words.
    own = [one for one in three if (one.p, one.q) == ((0.5, 0.3, 0.2), (0.2, 0.6, 0.2))]
    short = sorted((_drafted(1 + place % 3, chance) for place in range(400)), key=_length)
    return [
        *chance.sample([one for one in two if one.p != one.q], 5),
        *own,
        *chance.sample(three, 5),
        *short,
    ]


def _rows(words: int) -> list[Row]:
    """Every distribution in tenths."""
    rows = [row for row in product(range(11), repeat=words) if sum(row) == 10]
    return [tuple(share / 10 for share in row) for row in rows]


def _is_even(p: Row, q: Row) -> bool:
    """Whether each chance is a multiple of 1/10: then ten equally spaced numbers hit it exactly."""
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
        near = [number for number in (edge - 0.01, edge + 0.01) if 0 <= number < 1]
        # Mostly below the edge, or the drafts behind it would hardly ever count.
        uniforms.append(round(chance.choices(near, (3, 1)[: len(near)])[0], 6))
    return Drafted(tuple(p), tuple(q), tuple(drafts), tuple(uniforms))


def _sure(chance: random.Random) -> Row:
    token = chance.randrange(2)
    return tuple(float(one == token) for one in range(3))


def _length(one: Drafted) -> int:
    return len(one.drafts)


def attempt(accept: Accept, case: Voice | Drafted) -> None:
    """Hold answers against the promises: drafts in order, then one token; and the model's voice."""
    if isinstance(case, Drafted):
        _attempt_call(accept, case)
    else:
        _attempt_voice(accept, case)


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
        raise Broken(
            f"You kept {counted(kept, 'draft')} and drew {WORDS[ids[-1]]}.",
            "a draft is kept if its number is below its chance",
            f"Draft {kept + 1}, {WORDS[draft]}: its number is {case.uniforms[kept]:.2f}, and the "
            f"model says it {ratio:.3g} times as often as the helper.",
        )
    if kept > case.kept:
        draft = case.drafts[case.kept]
        raise Broken(
            f"You kept {counted(kept, 'draft')}.",
            "a draft is refused if its number is not below its chance",
            f"Draft {case.kept + 1}, {WORDS[draft]}: its number is {case.uniforms[case.kept]:.2f}; "
            f"the model says it with {case.p[case.kept][draft]:.0%}, the helper with "
            f"{case.q[case.kept][draft]:.0%}.",
        )


def _weights(weights: Iterable[float], words: int) -> list[float]:
    """What was given to `pick`. Raises Broken for what nothing can be drawn from."""
    shares = [float(one) for one in weights]
    if len(shares) != words:
        raise Broken(
            f"You gave {counted(len(shares), 'weight')} to pick().",
            "pick() gets a weight for each word of the vocabulary",
            f"There are {words} words here.",
        )
    if min(shares) < 0 or not 0 < sum(shares) < float("inf"):
        raise Broken(
            f"You gave the weights {[round(one, 3) for one in shares]} to pick().",
            "weights are 0 or more, and not all of them 0",
            "A word that the helper says more often than the model: what is left of it?",
        )
    return shares


def _leading(answer: Any, drafts: list[int], words: int) -> list[int]:
    """The answer, if it is some leading drafts and one token. Raises Broken otherwise."""
    if not isinstance(answer, list | tuple) or not all(_is_token(one, words) for one in answer):
        raise Broken(
            f"You returned {answer!r}.",
            "the answer is a list of tokens",
            f"Tokens are numbers from 0 to {words - 1}; pick() gives one.",
        )
    ids = [int(one) for one in answer]
    said = listed(WORDS[one] for one in ids) if ids else "nothing"
    if not ids:
        raise _no_own_token(said)
    if len(ids) > len(drafts) + 1:
        raise Broken(
            f"You returned {said}.",
            "at most one token more than there are drafts",
            f"The model was asked in {len(drafts) + 1} places.",
        )
    wrong = next((i for i in range(len(ids) - 1) if ids[i] != drafts[i]), None)
    if wrong is not None:
        raise Broken(
            f"You returned {said}. Drafted: {listed(WORDS[one] for one in drafts)}.",
            "behind the first draft that is refused comes one token, and no more",
            f"Token {wrong + 2} was guessed after a word that was never said.",
        )
    return ids


def _no_own_token(said: str) -> Broken:
    return Broken(
        f"You returned {said}.",
        "every call ends with a token of the model's own, from pick()",
        "The model has spoken behind the last draft as well. Without that token, a call with bad "
        "luck would bring nothing at all.",
    )


def _is_token(one: Any, words: int) -> bool:
    whole = hasattr(one, "__index__") and not isinstance(one, bool)
    return whole and 0 <= int(one) < words


@dataclass
class _Heard:
    """What came out, over all drafts and all of chance."""

    first: list[float]
    kept: list[float]
    behind: list[float]  # the token after a draft that was kept


def _attempt_voice(accept: Accept, case: Voice) -> None:
    heard = _listen(accept, case)
    words = range(len(case.p))
    if all(abs(heard.first[word] - case.p[word]) < SLACK for word in words):
        total = sum(heard.kept)
        if total == 0 and _shared(case) > 0:
            raise _no_own_token("one word, whatever the draft")
        if any(abs(heard.behind[word] - total * case.after[word]) > SLACK for word in words):
            shares = [share / total for share in heard.behind]
            raise Broken(
                f"Behind a draft that was kept, you said {told(shares)}.",
                "the token behind the last draft has the model's own distribution there",
                "p has one row more than q. Which row did you draw from?",
            )
        return
    look = "All of it is the helper's voice: nothing of the model's is left."
    if any(abs(mine - its) > SLACK for mine, its in zip(heard.first, case.q, strict=True)):
        wrong = [
            word
            for word in words
            if case.q[word] and abs(heard.kept[word] - min(case.p[word], case.q[word])) > SLACK
        ]
        look = "Drafts are kept as often as they should be. " + (
            "So it is the word drawn after a refusal. The drafts that were kept have said "
            f"{told(heard.kept)} of all. What is missing?"
        )
        if wrong:
            word = max(wrong, key=lambda one: case.q[one])
            look = (
                f"A draft {WORDS[word]} was kept in {heard.kept[word] / case.q[word]:.0%} of the "
                f"cases. The helper says it with {case.q[word]:.0%}, the model with "
                f"{case.p[word]:.0%}."
            )
    raise Broken(
        f"Over all drafts and all of chance, the first word came out as {told(heard.first)}.",
        f"the text has the model's own distribution, {told(case.p)}",
        look,
    )


def _shared(case: Voice) -> float:
    return sum(min(p, q) for p, q in zip(case.p, case.q, strict=True))


def _listen(accept: Accept, case: Voice) -> _Heard:
    words = len(case.p)
    heard = _Heard([0.0] * words, [0.0] * words, [0.0] * words)
    numbers = [(place + 0.5) / CHANCES for place in range(CHANCES)]
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
                raise _no_own_token(listed(WORDS[one] for one in ids))
            weight = case.q[draft] / CHANCES**2
            heard.first[ids[0]] += weight
            if len(ids) > 1:
                heard.kept[draft] += weight
                heard.behind[ids[1]] += weight
    return heard
