"""A request that has output already: another engine generated it, and this one goes on.

The request is submitted in the state of one that was preempted: it joins the front of the queue, its
prompt and its output are computed again, as far as the prefix cache does not hold them, and then its
next token is sampled. The token is
the one that the other engine would have sampled, up to rounding: its random number depends only on the
seed, the sample and the position (`uniform` of `engine/core/runner.py`), and penalties, grammar, stop
strings and limits count the earlier output.

Source: Dynamo's request migration (`lib/llm/src/migration.rs`) appends the tokens so far to the prompt.
Differs from it: here they stay output, so that limits, penalties and grammars hold over both parts.
"""

from dataclasses import dataclass
from typing import Any

from engine.core.loop import Loop
from engine.core.request import Request


@dataclass(slots=True)
class Begun:
    """One sample's output so far; an argument of `Engine.submit`, for a request with one sample.

    sample  its number among the samples of its prompt
    output  its token ids
    given   the same output as a `TokenOutput`, once it has been submitted
    """

    sample: int
    output: list[int]
    given: Any = None  # it does not pass between processes

    def resume(self, request: Request, loop: Loop) -> bool:
        """Give a new request its output. Return whether the output has ended."""
        request.sample = self.sample
        processor = loop.new_output(request)
        self.given = given = processor.replay(self.output)
        request.finish_reason = given.finish_reason
        if request.finish_reason is not None:
            return True
        loop.outputs[request.id] = processor
        return False
