"""A draft model: a second, smaller model guesses how the text goes on.

The model that it guesses for is the target. After each forward pass of the target, `follow` runs the
draft model for all requests of the step at once:

    one pass over the same rows         computes their KV, and the first draft of each request that
                                        decodes next
    length - 1 passes of a token each   compute the other drafts

`propose` returns the drafts when the next step is scheduled.

**KV.** The draft model has KV memory of its own with the same block numbers. So block tables,
prefix-cache hits, copies on write, forks, evictions and preemptions apply to both models, and no second
allocator is needed. Because the draft model follows every row, its KV is valid wherever the target's
is. Blocks are copied in both memories. A page that moves to another replica holds the KV of both models
(`PairedPages`), so only replicas with the same two models exchange pages. The KV of drafts is
temporary: it lies in the unused part of the request's last block and in spare blocks, and it is
computed again once the target has accepted the drafts.

**A draft pass that fails** costs drafts and nothing else, because the target's tokens exist already.
The requests of that pass get no drafts in the next step. The blocks that the pass should have written
count as stale, and the next pass of a request with a stale block computes that block again. After
three failures in a row, drafting is switched off for good. The log has the reason
(`StepFinished.draft_error`).

**Drafts are drawn as the target draws**: by the same sampler, with the request's own parameters and
with the random number of the same position. So they are exactly the target's tokens where both models
agree, at any temperature. Which drafts are proposed changes no output (`verification.py`), even if
they depend on the numbers that the target will use. This is drafter-invariant speculative decoding
(Daliri et al., arXiv:2408.07978).

Source: vLLM's `vllm/v1/spec_decode/draft_model.py`, which also runs the draft model over the target's
rows.

Differs from vLLM:

- Spare blocks hold the KV of drafts. vLLM allocates slots to the request in advance
  (`num_lookahead_tokens`).
- vLLM's drafts are greedy, or drawn with random numbers of their own.
- Samples get no drafts in the step after they fork, because they still share a partly filled block.
- In vLLM, a failing draft model stops the engine.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import msgspec

from engine.core.config import ConfigError, EngineConfig
from engine.core.request import Constraint, Request
from engine.core.runner import KVFormat, PageStore, Row, Runner, Sampled

MAX_FAILURES = 3  # drafting is switched off after this many failures in a row


def num_draft_blocks(config: EngineConfig, length: int) -> int:
    """Return the number of KV blocks of a draft model: the target's, and spare ones for the drafts."""
    return config.num_blocks + config.max_batch_size * config.blocks_for(length)


@dataclass(slots=True)
class _Draft:
    """A row of the draft model whose request gets drafts.

    row     the row; its request is a copy, to which the drafts are appended
    length  number of tokens before the drafts
    limit   number of tokens at which drafting ends
    """

    row: Row
    length: int
    limit: int


class DraftModel:
    """A drafter that runs a model; see `engine.core.speculation.drafter.Drafter`.

    runner  the draft model; it must have the target's vocabulary, and one engine at a time uses it
    length  maximum number of tokens to propose
    """

    def __init__(self, runner: Runner, length: int = 4) -> None:
        if not isinstance(length, int) or isinstance(length, bool) or length < 1:
            raise ConfigError(f"draft_length must be a whole number of at least 1, got {length!r}")
        self.runner = runner
        self.length = length
        self._vocab_size = 0
        self._block_size = 1
        self._spare: list[list[int]] = []  # the blocks for drafts of each seat in the batch
        self._proposals: dict[int, tuple[int, list[int]]] = {}  # request -> its length and drafts
        self._stale: set[int] = set()  # blocks that lack KV because a pass failed
        self._error = ""  # why drafting failed in this step
        self._failures = 0  # failed steps in a row

    def describe(self) -> dict[str, Any]:
        """Return the draft model's summary and the number of drafts, as JSON values."""
        return self.runner.describe() | {"draft_length": self.length}

    def paired(self, target: PageStore) -> "PairedPages":
        """Return the pages of both models together."""
        return PairedPages(target, self.runner)

    def reserve(self, config: EngineConfig, vocab_size: int) -> None:
        """Allocate KV memory for an engine whose tokenizer has `vocab_size` tokens.

        Raises ConfigError if the KV memory does not fit.
        """
        self._vocab_size, self._block_size = vocab_size, config.block_size
        self._proposals, self._stale, self._error, self._failures = {}, set(), "", 0
        num_blocks = num_draft_blocks(config, self.length)
        self.runner.reserve(num_blocks, config.block_size)
        spare = list(range(config.num_blocks, num_blocks))
        each = config.blocks_for(self.length)
        self._spare = [spare[i : i + each] for i in range(0, len(spare), each)]

    @property
    def is_off(self) -> bool:
        """Whether drafting is switched off, because it failed several times in a row."""
        return self._failures >= MAX_FAILURES

    def copy(self, source: int, destination: int) -> None:
        """Copy a block, as the target does. A failure is reported by `follow`."""
        if self.is_off:
            return
        self._stale.discard(destination)
        try:
            self.runner.run([], [(source, destination)])
        except Exception as error:  # the next pass computes the block instead
            self._error = _in_one_line(error)
            self._stale.add(destination)
        if source in self._stale:
            self._stale.add(destination)

    def follow(self, rows: Sequence[Row], sampled: Sequence[Sequence[Sampled]]) -> str:
        """Compute the KV of the target's rows, and draft for the requests that decode next.

        `sampled` are the target's results, whose tokens are not in `request.tokens` yet. A second call
        with the same arguments repeats the work. Returns why drafting failed in this step, usually "".
        """
        if self.is_off:
            return ""
        try:
            self._draft(rows, sampled)
        except Exception as error:  # the target's tokens do not depend on drafts
            self._error = _in_one_line(error)
            for row in rows:
                self._stale.update(self._blocks(row))
        failed, self._error = self._error, ""
        if failed:
            self._proposals = {}
        self._failures = self._failures + 1 if failed else 0
        if self.is_off:
            failed += f" (drafting is switched off after {MAX_FAILURES} failures in a row)"
        return failed

    def _draft(self, rows: Sequence[Row], sampled: Sequence[Sequence[Sampled]]) -> None:
        followed: list[Row] = []
        drafts: list[_Draft] = []
        for row, samples in zip(rows, sampled, strict=True):
            new = samples[0].ids if len(samples) == 1 else []
            request = _with_tokens(row.request, new)
            limit = self._limit(request, new)
            # The KV of the new token is needed only for drafting. After a fork, each sample computes
            # the KV of its own new token in the next step.
            end = len(request.tokens) - (not limit) if new else row.start + row.count
            if self.runner.max_context is not None:
                end = min(end, self.runner.max_context)
            start = self._first_missing(row)
            if end <= start:
                continue
            draft_row = Row(request, start, end - start)
            followed.append(draft_row)
            if limit:
                draft_row.samples = row.samples
                request.block_table += self._spare[len(drafts)]
                drafts.append(_Draft(draft_row, len(request.tokens), limit))
        rewritten = {block for row in followed for block in self._blocks(row)}
        if followed:
            self._draw(followed)
        while unfinished := [draft.row for draft in drafts if self._continues(draft)]:
            for row in unfinished:
                row.start, row.count = len(row.request.tokens) - 1, 1
            self._draw(unfinished)
        self._stale -= rewritten
        self._proposals = {
            draft.row.request.id: (draft.length, draft.row.request.tokens[draft.length :])
            for draft in drafts
        }

    def _first_missing(self, row: Row) -> int:
        """Return the first position whose KV is missing: the row's start, or an earlier stale block."""
        if not self._stale:
            return row.start
        first = (i for i, block in enumerate(row.request.block_table) if block in self._stale)
        return min(row.start, next(first, len(row.request.block_table)) * self._block_size)

    def _blocks(self, row: Row) -> list[int]:
        """Return the blocks that contain positions of a row."""
        end = -(-(row.start + row.count) // self._block_size)
        return row.request.block_table[row.start // self._block_size : end]

    def propose(self, request: Request) -> list[int]:
        """Return the drafts for a request, or [] if other tokens have been appended since then."""
        length, drafts = self._proposals.get(request.id, (0, []))
        if length != len(request.tokens):
            return []
        return drafts if drafts[-1] < self._vocab_size else drafts[:-1]

    def _limit(self, request: Request, new: Sequence[int]) -> int:
        """Return the length up to which a text is drafted, or 0 if drafts are useless.

        Drafts are useless if the row has not caught up or the text has ended. The target's token after
        the drafts counts towards max_tokens, too.
        """
        if not new or not request.end_ids.isdisjoint(new):
            return 0
        limit = min(
            len(request.tokens) + self.length,
            request.prompt_length + request.params.max_tokens - 1,
        )
        if self.runner.max_context is not None:  # the draft model need not read its last draft
            limit = min(limit, self.runner.max_context + 1)
        return limit if limit > len(request.tokens) else 0

    def _draw(self, rows: list[Row]) -> None:
        """Run the draft model, and append the token that it draws for each row with a sample."""
        for row, samples in zip(rows, self.runner.run(rows, []), strict=True):
            for sample in samples:
                row.request.tokens += sample.ids

    def _continues(self, draft: _Draft) -> bool:
        """Return whether another draft follows, because the text is short enough and has not ended.

        Some models compute logits for more ids than the tokenizer has. Drafting stops at such an id.
        """
        request = draft.row.request
        last = request.tokens[-1]
        is_end = last in request.end_ids or last >= self._vocab_size
        return len(request.tokens) < draft.limit and not is_end


@dataclass(slots=True)
class _DraftConstraint:
    """A request's constraint, as the sampler of the draft model asks it: for masks only."""

    _constraint: Constraint

    def mask(self, output: list[int]) -> int:
        return self._constraint.draft_mask(output)


def _in_one_line(error: Exception) -> str:
    """Return an error's class and message in one line of at most 120 characters."""
    return textwrap.shorten(f"{type(error).__name__}: {error}", 120, placeholder=" ...")


def _with_tokens(request: Request, new: list[int]) -> Request:
    """Return a copy with more tokens, for which the sampler reports no log-probabilities."""
    params = request.params
    if params.logprobs is not None or params.prompt_logprobs is not None:
        params = msgspec.structs.replace(params, logprobs=None, prompt_logprobs=None)
    tokens, block_table = request.tokens + new, list(request.block_table)
    constraint = request.constraint and cast(Constraint, _DraftConstraint(request.constraint))
    return replace(
        request, tokens=tokens, block_table=block_table, params=params, constraint=constraint
    )


@dataclass(slots=True)
class PairedPages:
    """The pages of two models with the same blocks: for each block, the target's page comes first.

    The class has the methods of `Runner` that `KVTransfer` needs. If a draft pass failed, a page may
    lack the draft model's KV, which costs the other replica some drafts.
    """

    _target: PageStore
    _draft: PageStore

    def kv_format(self) -> KVFormat:
        """Return the format of both pages together."""
        formats = [self._target.kv_format(), self._draft.kv_format()]
        models, dtypes, shapes, sizes = zip(*formats, strict=True)
        return KVFormat("+".join(models), "+".join(dtypes), sum(shapes, ()), sum(sizes))

    def read_pages(self, blocks: Sequence[int]) -> bytes:
        """Return the pages of blocks."""
        pages = (
            runner.read_pages([block]) for block in blocks for runner in (self._target, self._draft)
        )
        return b"".join(pages)

    def write_pages(self, blocks: Sequence[int], pages: memoryview) -> None:
        """Write a pair of pages to each of `blocks`."""
        first, both = self._target.kv_format().page_bytes, self.kv_format().page_bytes
        for i, block in enumerate(blocks):
            pair = pages[i * both : (i + 1) * both]
            self._target.write_pages([block], pair[:first])
            self._draft.write_pages([block], pair[first:])
