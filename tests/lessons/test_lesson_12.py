"""Lesson 12's exercise: wrong tool states are refused helpfully, right ones run in the engine."""

from enum import Enum

import pytest

from checks import check
from checks.judging import Verdict, judge
from checks.lesson_12 import attempt, cases
from engine import CostRunner, Engine, EngineConfig, SamplingParams
from engine.output.tool_use import ToolUse
from engine.text.byte_tokenizer import ByteTokenizer
from solutions.lesson_12 import ToolState as Solution


def verdict(state) -> Verdict:
    return judge(state, cases(), attempt)


# Wrong


class SharesItsBuffer(Solution):
    buffer: list[int] = []
    open = False

    def __init__(self, marks, tokenizer, evaluate):
        super().__init__(marks, tokenizer, evaluate)
        self.open = False

    def feed(self, token):
        if token == self.marks.call_start:
            self.open = True
            self.buffer.clear()
        elif token == self.marks.call_end and self.open:
            self.open = False
            result = self.evaluate(self.tokenizer.decode(self.buffer))
            return [] if result is None else self.framed(result)
        elif self.open:
            self.buffer.append(token)
        return []

    def framed(self, text):
        answer = self.tokenizer.encode_ordinary(text)
        return [self.marks.output_start, *answer, self.marks.output_end]


class ForcesAnError(SharesItsBuffer):
    def __init__(self, marks, tokenizer, evaluate):
        super().__init__(marks, tokenizer, lambda text: evaluate(text) or "error")
        self.buffer = []


class TreatsPythonAsACalculator(SharesItsBuffer):
    def __init__(self, marks, tokenizer, evaluate):
        super().__init__(marks, tokenizer, self.python)
        self.buffer = []

    def python(self, text):
        try:
            return str(eval(text))
        except Exception:
            return None


class NeverStarts(Solution):
    def __init__(self, *given):
        super().__init__(*given)
        self.buffer = []

    def feed(self, token):
        if token == self.marks.call_start:
            self.buffer = []
        elif token == self.marks.call_end:
            result = self.evaluate(self.tokenizer.decode(self.buffer))
            return [] if result is None else SharesItsBuffer.framed(self, result)
        else:
            self.buffer.append(token)
        return []


class NeverCloses(Solution):
    def feed(self, token):
        call = None if self.call is None else list(self.call)
        answer = super().feed(token)
        if token == self.marks.call_end:
            self.call = call
        return answer


class KeepsTheFirstStart(Solution):
    def feed(self, token):
        if token == self.marks.call_start and self.call is not None:
            return []
        return super().feed(token)


class AnswersWithoutAFrame(Solution):
    def feed(self, token):
        return super().feed(token)[1:-1]


class GivesNone(Solution):
    def feed(self, token):
        return super().feed(token) or None


class AnswersEachLetter(Solution):
    def feed(self, token):
        answer = super().feed(token)
        if self.call:
            result = self.evaluate(self.tokenizer.decode(self.call))
            return SharesItsBuffer.framed(self, result) if result else []
        return answer


class NeverAnswers(Solution):
    def feed(self, token):
        super().feed(token)
        return []


class TakesTheMarksAlong(Solution):
    def feed(self, token):
        if self.call is not None and token == self.marks.call_end:
            self.call.append(token)
        return super().feed(token)


class DecodesTokenByToken(Solution):
    """Breaks an é, which is two tokens, into two replacement characters."""

    def __init__(self, marks, tokenizer, evaluate):
        super().__init__(marks, tokenizer, evaluate)
        self.text = None

    def feed(self, token):
        if token == self.marks.call_start:
            self.text = ""
        elif token == self.marks.call_end and self.text is not None:
            result, self.text = self.evaluate(self.text), None
            return [] if result is None else SharesItsBuffer.framed(self, result)
        elif self.text is not None:
            self.text += self.tokenizer.decode([token])
        return []


class DropsWhatIsNotAscii(DecodesTokenByToken):
    def feed(self, token):
        return [] if 127 < token < 256 else super().feed(token)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            SharesItsBuffer,
            [
                "Two samples write by turns",
                "each sample is answered for itself",
                "Alone, this sample gets",
                "What do two states of yours share?",
            ],
        ),
        (
            ForcesAnError,
            [
                "One sample writes <|python_start|> <|python_end|>",
                "you forced <|output_start|>error<|output_end|>",
                "what cannot be evaluated forces nothing",
                "and no words about it either",
            ],
        ),
        (TreatsPythonAsACalculator, ["evaluate('2**9') is None"]),
        (
            NeverStarts,
            [
                "One sample writes 7 <|python_end|>",
                "an end without a start forces nothing",
                "No call was open",
            ],
        ),
        (
            NeverCloses,
            [
                "an end without a start forces nothing",
            ],
        ),
        (
            KeepsTheFirstStart,
            [
                "One sample writes <|python_start|> 7 <|python_start|> <|python_end|>",
                "what cannot be evaluated forces nothing",
            ],
        ),
        (AnswersWithoutAFrame, ["output_start, the result as text, output_end"]),
        (GivesNone, ["feed() gave None.", "a list of token ids"]),
        (AnswersEachLetter, ["After 7, you forced", "and nowhere else"]),
        (NeverAnswers, ["you forced nothing", "a complete call is answered", "The call was '7'"]),
        (
            DecodesTokenByToken,
            [
                "One sample writes <|python_start|> 'éèé'.count('é') <|python_end|>",
                "you forced <|output_start|>3<|output_end|>",
                "what its tokens say together",
                "two tokens",
            ],
        ),
        (DropsWhatIsNotAscii, ["'éèé'.count('é')", "what its tokens say together"]),
        (TakesTheMarksAlong, ["a complete call is answered"]),
    ],
)
def test_a_wrong_state_is_refused_with_the_text_and_the_promise(wrong, said: list[str]) -> None:
    found = verdict(wrong)
    assert not found.passed
    message = " ".join(str(found).split())
    for words in said:
        assert words in message


# Right


class Where(Enum):
    TEXT = 1
    CALL = 2


class AsAMachineWithNames:
    def __init__(self, marks, tokenizer, evaluate):
        self.marks, self.tokenizer, self.evaluate = marks, tokenizer, evaluate
        self.where, self.buffer = Where.TEXT, []

    def feed(self, token):
        if token == self.marks.call_start:
            self.where, self.buffer = Where.CALL, []
            return []
        if self.where is Where.TEXT:
            return []
        if token != self.marks.call_end:
            self.buffer.append(token)
            return []
        self.where = Where.TEXT
        result = self.evaluate(self.tokenizer.decode(self.buffer))
        if result is None:
            return []
        answer = self.tokenizer.encode_ordinary(result)
        return [self.marks.output_start, *answer, self.marks.output_end]


class AsAGenerator:
    """The state is where the generator stands."""

    def __init__(self, marks, tokenizer, evaluate):
        self.reading = self.read(marks, tokenizer, evaluate)
        next(self.reading)

    def feed(self, token):
        return self.reading.send(token)

    def read(self, marks, tokenizer, evaluate):
        token = yield []
        while True:
            while token != marks.call_start:
                token = yield []
            call = []
            token = yield []
            while token not in (marks.call_start, marks.call_end):
                call.append(token)
                token = yield []
            result = evaluate(tokenizer.decode(call))
            if token == marks.call_end:
                forced = []
                if result is not None:
                    answer = tokenizer.encode_ordinary(result)
                    forced = [marks.output_start, *answer, marks.output_end]
                token = yield forced


class AsWritten:
    """Keeps all it has read, and looks back."""

    def __init__(self, marks, tokenizer, evaluate):
        self.marks, self.tokenizer, self.evaluate, self.read = marks, tokenizer, evaluate, []

    def feed(self, token):
        before, self.read = self.read, [*self.read, token]
        if token != self.marks.call_end or self.marks.call_start not in before:
            return []
        start = len(before) - 1 - before[::-1].index(self.marks.call_start)
        call = before[start + 1 :]
        if self.marks.call_end in call:
            return []
        result = self.evaluate(self.tokenizer.decode(call))
        return (
            []
            if result is None
            else [
                self.marks.output_start,
                *self.tokenizer.encode_ordinary(result),
                self.marks.output_end,
            ]
        )


RIGHT = [Solution, AsAMachineWithNames, AsAGenerator, AsWritten]


@pytest.mark.parametrize("right", RIGHT)
def test_every_right_state_is_accepted_and_answers_in_the_engine(right, capsys) -> None:
    tool = check.lesson_12(right)
    assert tool is right
    assert "keeps its promises in all" in capsys.readouterr().out
    tokenizer = ByteTokenizer()
    call = tokenizer.encode("<|python_start|>17+25<|python_end|>")[1:]
    said = {1: [*call, 0, 0, 0, 0, *b"42."], 2: list(b"Forty-one.")}
    logs = []
    for part in (right, ToolUse):
        runner = CostRunner(10, 0.25, outputs=said)
        engine = Engine(runner, EngineConfig(), clock=runner.clock, tool=part)
        engine.submit("17+25?", SamplingParams(max_tokens=14, n=2))
        while engine.has_work():
            engine.step()
        assert engine.log[0].classes["tool"] == part.__name__
        logs.append(engine.log.tokens)
    assert logs[0].equals(logs[1])
    assert logs[0].forced.sum() == 4


class Stub:
    def __init__(self, marks, tokenizer, evaluate):
        self.marks, self.tokenizer, self.evaluate = marks, tokenizer, evaluate

    def feed(self, token):
        """What to force."""
        ...


def test_an_untouched_stub_is_not_written_yet_and_the_engine_runs_its_own(capsys) -> None:
    assert check.lesson_12(Stub) is ToolUse
    assert "feed: not written yet" in capsys.readouterr().out


def test_cases_come_shortest_first() -> None:
    lengths = [len(reading.words) for reading in cases()]
    assert lengths == sorted(lengths)
