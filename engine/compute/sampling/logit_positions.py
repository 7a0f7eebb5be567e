"""A place: a spot behind some text where one token is to be chosen.

A step has one for each sample of each row that has caught up, and with drafts one more after each
draft. The sampler treats all places of a step at once: place i goes with row i of its logits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.runner import Row
from engine.scheduling.request import Request
from engine.scheduling.sampling_params import SamplingParams


@dataclass(slots=True)
class LogitPosition:
    """Where one token is chosen, for one sample of a request.

    sample  the sample's index; samples of one prompt share a request until it forks
    drafts  drafted tokens before this place: part of its text, though not yet of the request's
    """

    request: Request
    params: SamplingParams
    sample: int
    drafts: Sequence[int]

    @property
    def position(self) -> int:
        """The place of the token in its text: how many tokens come before it."""
        return len(self.request.tokens) + len(self.drafts)

    @property
    def output_length(self) -> int:
        """How many output tokens come before it."""
        return self.position - self.request.prompt_length

    def text(self) -> list[int]:
        """The tokens before it, prompt and output."""
        return [*self.request.tokens, *self.drafts]

    def output(self) -> list[int]:
        """The output tokens before it."""
        return [*self.request.output_ids, *self.drafts]


def logit_positions(rows: Sequence[Row]) -> tuple[list[LogitPosition], list[int]]:
    """Where tokens are due: row by row, sample by sample, after each draft; and their logits.

    Entry i of the second list is the place's row among the logits that `make_batch` asks for.
    """
    places: list[LogitPosition] = []
    logit_of: list[int] = []
    first = 0
    for row in rows:
        request, drafts = row.request, row.drafts
        params = request.params
        if params.prompt_logprobs is not None:
            first += row.scored
        for sample in row.samples:
            for j in range(len(drafts) + 1):
                places.append(LogitPosition(request, params, sample, drafts[:j]))
                logit_of.append(first + j)
        if row.samples:
            first += len(drafts) + 1
    return places, logit_of
