"""The parity table: every family in every situation, against transformers on the same weights.

A row of the table is a family, or one of them in other files or another precision. A column is a
situation that the scheduler brings about: the same prompts go through the same engine with settings
under which it has to arise, and the event log says whether it did. `TOGETHER` brings most of them about
in one run.

The judge reads prompt and output at once and says for each output token whether it is the one with
the highest logit after the tokens before it: greedy decoding, step by step. `test_parity_table.py` runs
the table.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from engine import Engine, EngineConfig, EventLog, SamplingParams
from engine.core.byte_tokenizer import ByteTokenizer
from engine.core.compute.torch_runner import TorchRunner
from engine.core.log import vocabulary as v
from engine.core.request import Request
from engine.core.runner import Row, Sampled
from engine.core.speculation.drafter import Drafter
from engine.extensions.draft_model import DraftModel
from engine.models import loader
from engine.models.config_file import read_config
from engine.models.weights.checkpoint import Checkpoint
from recorders.fixtures import record_gguf
from tests.engine.compute.models import MODELS, save
from tests.engine.drafters import Knowing, another, drafted
from tests.engine.workloads import finish

TIE = 1e-4  # where the two likeliest logits are closer than this, either may win
# What half precision, or activations rounded to it, may change in a logit,
# as a share of the largest one.
HALF = 0.05
STEM, SHORTEST, LONGEST = 16, 18, 42  # tokens all prompts share; prompt lengths


def _exact(logits: torch.Tensor) -> float:
    return TIE


def _half(logits: torch.Tensor) -> float:
    return HALF * float(logits.abs().max())


@dataclass
class Subject:
    """A row of the table: a model in the engine, and the judge with the same weights."""

    runner: TorchRunner
    tokenizer: ByteTokenizer
    judge: torch.nn.Module
    tie: Callable[[torch.Tensor], float] = _exact


def _from_directory(name: str, dtype: torch.dtype = torch.float32, **save_options: str):
    def make(directory: Path) -> Subject:
        judge = save(directory, name, **save_options)
        weights = Checkpoint(directory, dtype)
        runner = TorchRunner(loader.build(read_config(directory), weights))
        return Subject(runner, ByteTokenizer(), judge, _exact if dtype == torch.float32 else _half)

    return make


def _from_fixture(name: str):
    """A file by llama.cpp's quantizer, whose matrices the engine keeps in int8 or int4."""

    def make(directory: Path) -> Subject:
        fixture = record_gguf.FIXTURES[name]
        runner, tokenizer = loader.load(fixture.file, dtype="float32")
        return Subject(runner, tokenizer, fixture.rounded(int4=True), _half)

    return make


# Name -> what makes it in an empty directory.
ROWS: dict[str, Callable[[Path], Subject]] = {
    **{name: _from_directory(name) for name in MODELS},
    "llama, sharded": _from_directory("llama", max_shard_size="40KB"),
    "gpt2, sharded": _from_directory("gpt2", max_shard_size="40KB"),
    "llama-llama3, bf16": _from_directory("llama-llama3", torch.bfloat16),
    "qwen3, fp16": _from_directory("qwen3", torch.float16),
    "gemma3, bf16": _from_directory("gemma3", torch.bfloat16),
    "gemma4, bf16": _from_directory("gemma4", torch.bfloat16),
    "olmo2, bf16": _from_directory("olmo2", torch.bfloat16),
    "phi4-long, fp16": _from_directory("phi4-long", torch.float16),
    "gguf llama, Q8_0": _from_fixture("llama-Q8_0"),
    "gguf qwen3, Q4_K_M": _from_fixture("qwen3-Q4_K_M"),
    "gguf llama, Q3_K_M": _from_fixture("llama-Q3_K_M"),
}


@dataclass(frozen=True)
class Column:
    """A situation: settings that bring it about, and how often a log says that it arose."""

    settings: dict[str, object]
    happened: Callable[[EventLog], int]
    says: str
    drafted: bool = False
    draft_model: bool = False


def _steps_alone(log: EventLog) -> int:
    sizes = [len(event.rows) for event in log.of(v.StepScheduled)]
    return len(sizes) if max(sizes) == 1 else 0


def _steps_together(log: EventLog) -> int:
    return sum(len(event.rows) >= 3 for event in log.of(v.StepScheduled))


def _prompts_in_chunks(log: EventLog) -> int:
    lengths = {event.request: len(event.prompt) for event in log.of(v.RequestArrived)}
    rows = Counter(
        row.request
        for event in log.of(v.StepScheduled)
        for row in event.rows
        if row.start < lengths[row.request]
    )
    return sum(count >= 3 for count in rows.values())


def _hits(log: EventLog) -> int:
    return sum(bool(event.blocks) and not event.resumed for event in log.of(v.Admitted))


def _recomputed(log: EventLog) -> int:
    """Resumed admissions of requests that had output already, and so recompute it."""
    has_output = {row.request for event in log.of(v.StepFinished) for row in event.tokens}
    resumed = [event for event in log.of(v.Admitted) if event.resumed]
    return sum(event.request in has_output for event in resumed)


def _accepted_and_rejected(log: EventLog) -> int:
    proposed, accepted = drafted(log)
    return min(accepted, proposed - accepted)


_WIDE = {"token_budget": 512, "max_kv_tokens": 1024, "block_size": 4, "prefix_cache": False}
COLUMNS = {
    "alone": Column(_WIDE | {"max_batch_size": 1}, _steps_alone, "steps, each with one row"),
    "batched": Column(_WIDE | {"max_batch_size": 8}, _steps_together, "steps with 3 rows or more"),
    "chunked": Column(
        _WIDE | {"max_batch_size": 4, "token_budget": 9},
        _prompts_in_chunks,
        "prompts computed in 3 rows or more",
    ),
    "cached": Column(
        _WIDE | {"max_batch_size": 2, "prefix_cache": True}, _hits, "admissions with cached blocks"
    ),
    "preempted": Column(
        _WIDE | {"max_batch_size": 4, "max_kv_tokens": 80}, _recomputed, "preempted and resumed"
    ),
    "speculative": Column(
        _WIDE | {"max_batch_size": 4},
        _accepted_and_rejected,
        "drafts accepted, and as many rejected",
        drafted=True,
    ),
    "draft model": Column(
        _WIDE | {"max_batch_size": 4, "token_budget": 32},
        _accepted_and_rejected,
        "drafts of a second model accepted, and as many rejected",
        draft_model=True,
    ),
}


def _rarest(log: EventLog) -> int:
    each = (_prompts_in_chunks, _hits, _recomputed, _accepted_and_rejected)
    return min(count(log) for count in each)


# All at once, for rows without the whole table in every run.
TOGETHER = Column(
    _WIDE | {"max_batch_size": 4, "token_budget": 16, "max_kv_tokens": 96, "prefix_cache": True},
    _rarest,
    "each of chunks, hits, preemptions and drafts",
    drafted=True,
)


class Slipping(TorchRunner):
    """A draft model with the target's own weights; every third of its tokens is wrong."""

    def run(self, rows: Sequence[Row], copies: Sequence[tuple[int, int]]) -> list[list[Sampled]]:
        results = super().run(rows, copies)
        for row, samples in zip(rows, results, strict=True):
            for one in samples:
                if len(row.request.tokens) % 3 == 0:
                    one.ids = [another(token) for token in one.ids]
        return results


@dataclass
class Cell:
    """What the judge found. `happened` counts the column's situation, `unlike` measures how far
    the engine's log-probabilities are from the judge's at most, in units of what is a tie.
    """

    tokens: int = 0
    wrong: int = 0
    ties: int = 0
    happened: int = 0
    unlike: float = 0.0
    said: set[int] = field(default_factory=set)


def make_prompts(count: int, vocab_size: int) -> list[list[int]]:
    """Random tokens of ragged lengths behind a common beginning."""
    rng = random.Random(3)
    stem = [rng.randrange(vocab_size) for _ in range(STEM)]
    lengths = [rng.randint(SHORTEST, LONGEST) for _ in range(count)]
    return [stem + [rng.randrange(vocab_size) for _ in range(n - STEM)] for n in lengths]


def fill(subject: Subject, column: Column, prompts: int, output: int) -> Cell:
    """One cell: `prompts` prompts with `output` tokens each."""
    texts = make_prompts(prompts, min(subject.runner.vocab_size, subject.tokenizer.vocab_size))
    requests, log = served(subject, column, texts, output)
    cell = Cell(happened=column.happened(log))
    for request in requests:
        _judge(subject, request, cell)
    return cell


def served(
    subject: Subject, column: Column, prompts: Sequence[list[int]], output: int
) -> tuple[list[Request], EventLog]:
    drafter: Drafter | None = None
    if column.drafted:
        # What the engine says without drafts, with a wrong token in every third place.
        known, _ = _serve(subject, _WIDE, prompts, output)
        drafter = Knowing([r.tokens for r in known], wrong=lambda position: position % 3 == 0)
    elif column.draft_model:
        drafter = DraftModel(Slipping(subject.runner._model))
    return _serve(subject, column.settings, prompts, output, drafter)


def _serve(
    subject: Subject,
    settings: dict[str, object],
    prompts: Sequence[list[int]],
    output: int,
    drafter: Drafter | None = None,
) -> tuple[list[Request], EventLog]:
    engine = Engine(
        subject.runner, EngineConfig(**settings), tokenizer=subject.tokenizer, drafter=drafter
    )
    params = SamplingParams(max_tokens=output, ignore_eos=True)
    requests = [engine.submit(prompt, params) for prompt in prompts]
    finish(engine)
    return requests, engine.log


@torch.inference_mode()
def _judge(subject: Subject, request: Request, cell: Cell) -> None:
    if request.error:
        raise RuntimeError(request.error)
    logits = subject.judge(torch.tensor([request.tokens])).logits[0, request.prompt_length - 1 : -1]
    tie = subject.tie(logits)
    ids = torch.tensor(request.output_ids)[:, None]
    gap = logits.max(dim=1).values - logits.gather(1, ids)[:, 0]
    logprobs = logits.log_softmax(-1).gather(1, ids)[:, 0]
    unlike = (logprobs - torch.tensor(request.logprobs)).abs().max() / tie
    cell.tokens += len(ids)
    cell.wrong += int((gap > tie).sum())
    cell.ties += int(((gap > 0) & (gap <= tie)).sum())
    cell.unlike = max(cell.unlike, float(unlike))
    cell.said.update(request.output_ids)
