"""Lesson 12's exercise: right tool states are accepted and run in the engine."""

from enum import Enum

import pytest

from checks import check
from checks.lesson_12 import cases
from engine import CostRunner, Engine, EngineConfig, SamplingParams
from engine.output.tool_use import ToolUse
from engine.text.byte_tokenizer import ByteTokenizer
from solutions.lesson_12 import ToolState as Solution


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


class WithADefaultInTheClass:
    """No call is open in the class; an open one hides that in the object."""

    call = None

    def __init__(self, marks, tokenizer, evaluate):
        self.marks, self.decode, self.encode = marks, tokenizer.decode, tokenizer.encode_ordinary
        self.evaluate = evaluate

    def feed(self, token):
        if token == self.marks.call_start:
            self.call = ()
        elif self.call is not None and token == self.marks.call_end:
            result = self.evaluate(self.decode(list(self.call)))
            del self.call
            if result:
                return [self.marks.output_start, *self.encode(result), self.marks.output_end]
        elif self.call is not None:
            self.call += (token,)
        return []


RIGHT = [Solution, AsAMachineWithNames, AsAGenerator, AsWritten, WithADefaultInTheClass]


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


def test_an_untouched_stub_counts_as_unwritten_and_the_engine_uses_its_own(capsys) -> None:
    assert check.lesson_12(Stub) is ToolUse
    assert "feed: not written yet" in capsys.readouterr().out


def test_cases_come_shortest_first() -> None:
    lengths = [len(reading.words) for reading in cases()]
    assert lengths == sorted(lengths)
