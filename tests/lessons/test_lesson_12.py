"""Lesson 12's exercise: right tool states are accepted and run in the engine."""

import pytest

from checks import check
from engine import CostRunner, Engine, EngineConfig, SamplingParams
from engine.core.byte_tokenizer import ByteTokenizer
from engine.core.output.tool_use import ToolUse
from solutions.lesson_12 import ToolState as Solution
from visualizer import read

OWN = ToolUse


def size(one):
    return len(one.words)


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


RIGHT = [Solution, WithADefaultInTheClass]


@pytest.mark.parametrize("right", RIGHT)
def test_every_right_state_is_accepted_and_answers_in_the_engine(right) -> None:
    assert check.lesson_12(right) is right
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
        logs.append(read(engine.log).tokens)
    assert logs[0].equals(logs[1])
    assert logs[0].forced.sum() == 4
