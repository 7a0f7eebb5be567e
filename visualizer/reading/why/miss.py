"""The answer of `why_missed`: its values, and its words, which the board has as well."""

import html
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from engine.simulation.facts import Knowledge
from visualizer.reading.messages import MESSAGES, fill

MissKind = Literal[
    "whole",  # no larger hit is possible
    "off",  # the prefix cache is off
    "scored",  # its prompt is scored, so it cannot use the cache
    "evicted",  # the next block was cached and was evicted
    "no_window",  # cached, but sliding layers lacked the window before the end of a larger hit
    "no_group",  # full attention had more of it than all KV cache groups together
    "computing",  # another request was computing it
    "never_stored",  # an earlier request has the same tokens, but they were not stored
    "shorter",  # the most similar earlier prompt ends inside the block
    "differs",  # the most similar earlier prompt differs inside the block
    "other_key",  # an earlier request has the same tokens, but another adapter or cache salt
    "first",  # no request that was admitted before begins with the same token, or block
    "other_replica",  # another replica of the cluster has it
    "unknown",  # the log has neither the tokens nor their hashes
    "waiting",  # it has not been admitted
    "before",  # it was admitted before the log begins
]
_WORDS = MESSAGES["missed"]
_Values = dict[str, int | str]


@dataclass(frozen=True, kw_only=True)
class WhyMissed:
    """Why the cached prefix of a request was not longer when it was first admitted. Counts are of
    tokens.

    step        of its admission; None if the log does not have it
    length      tokens of its prompt
    found       how many of them were cached
    most        largest possible hit: whole blocks, and at least one token is computed
    about       the request that it is about: the most similar one, or the one that computed the block
    agree       how many first tokens it has in common with `about`, or with a cached prefix
    token, other     the texts of the first tokens that differ; None if unknown
    group       the KV cache group that had least of it, and how many tokens that had
    evicted     the step in which the next block was evicted, if it was
    needed_by   the request that the eviction was for; None if it is unknown or there is none
    eviction    the reason of the eviction
    moved       what the tiers below the GPU had of the rest, and what became of that
    elsewhere   another replica and how many tokens it had cached
    by_hash     whether only hashes of blocks could be compared, because token ids are unknown
    mark        whether all of this is recorded, or a part is inferred, or unknown
    names       of all requests
    """

    request: int
    kind: MissKind
    step: int | None = None
    length: int = 0
    found: int = 0
    most: int = 0
    block_size: int = 0
    about: int | None = None
    agree: int = 0
    token: str | None = None
    other: str | None = None
    group: tuple[str, int] = ("", 0)
    evicted: int | None = None
    needed_by: int | None = None
    eviction: str = ""
    elsewhere: tuple[str, int] | None = None
    moved: str = ""
    by_hash: bool = False
    mark: Knowledge = "recorded"
    names: Mapping[int, str]

    def __str__(self) -> str:
        """Return the answer in words."""
        return " ".join(f"{sentence}." for sentence in self.sentences())

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(str(self))}</p>"

    def sentences(self) -> list[str]:
        """Return how much was cached, and then why it was not more. `why_missed.ts` says the same."""
        if self.kind in ("waiting", "before"):
            return [self._say(_WORDS[self.kind], self.request)]
        found: _Values = dict(found=self.found, length=self.length, step=str(self.step))
        said = [self._say(_WORDS["found"], self.request, **found)]
        values: _Values = dict(
            size=self.block_size,
            agree=self.agree,
            group=self.group[0],
            had=self.group[1],
            range=f"{self.found + 1} to {self.found + self.block_size}",
            evicted=str(self.evicted),
            position=self.agree + 1,
            block=f"{self.agree + 1} to {self.agree + self.block_size}",
        )
        kind: str = self.kind
        if kind == "evicted":
            kind = "evicted" if self.needed_by is not None else "evicted_for_unknown"
            kind = "evicted_cleared" if self.eviction == "cleared" else kind
        elif kind == "no_group" and self.group[1] > self.found:
            kind = "no_group_either"
        elif kind == "differs" and self.about is None:
            kind = "differs_cached"
        if self.kind in ("differs", "first") and self.by_hash:
            kind += "_block"
        about = self.needed_by if self.kind == "evicted" else self.about
        if kind != "other_replica":
            said.append(self._say(_WORDS[kind], about, **values))
        if self.kind == "differs" and self.token is not None and self.other is not None:
            own, other = (json.dumps(one, ensure_ascii=False) for one in (self.token, self.other))
            said[-1] += self._say(_WORDS["texts"], None, own=own, other=other)
        if self.elsewhere is not None:
            replica, tokens = self.elsewhere
            said.append(self._say(_WORDS["elsewhere"], None, replica=replica, tokens=tokens))
        if self.moved:
            said.append(self.moved[0].upper() + self.moved[1:])
        if self.mark == "inferred":
            said[-1] += _WORDS["inferred"]
        return said

    def _say(self, message: str, who: int | None, **values: int | str) -> str:
        words = fill(message, who="" if who is None else who, **values)
        return "".join(one if isinstance(one, str) else self.names[one] for one in words)
