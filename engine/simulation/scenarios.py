"""The gallery of scenarios: small, named workloads, each the smallest run that shows its idea.

    scenario("preemption").run()                   # the log
    scenario("preemption").run(preemption=False)   # the same people, one setting changed

Most are the workloads of the lessons, so that a lesson and the gallery show the same picture.
`python -m engine.simulation.scenarios FOLDER` writes their logs for the visualizer, which shows them
without an engine.
"""

import gzip
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from engine.core.config import EngineConfig
from engine.core.log.log import EventLog
from engine.core.log.vocabulary import RunStarted
from engine.core.speculation.drafter import Drafter
from engine.extensions.prompt_lookup import PromptLookup
from engine.simulation.cost_runner import Cost, CostRunner
from engine.simulation.mixture_runner import MixtureRunner
from engine.simulation.simulate import simulate
from engine.simulation.speakers import COMMON, NAMES, Speaker, workload_of
from engine.simulation.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a scenario is made: a workload, and what to look at.

    caption   two or three sentences: what to look at, and why it happens
    speakers  in order of arrival
    step      the step to look at
    select    the name of the request to look at; if several share it, the first
    sample    the sample of that request
    cost      the simulated machine; by default 10 ms per step and 0.25 ms per token
    drafter   makes the drafter of a scenario about speculation
    runner    makes the simulated machine, if `cost` does not describe it
    """

    name: str
    caption: str
    speakers: tuple[Speaker, ...]
    config: EngineConfig
    step: int
    select: str
    sample: int = 0
    cost: Cost = field(default=Cost(10, 0.25))
    drafter: Callable[[], Drafter] | None = None
    runner: Callable[[], CostRunner] | None = None

    @property
    def workload(self) -> Workload:
        """The requests of all speakers."""
        return workload_of(self.speakers)

    @property
    def request(self) -> int:
        """The id of the request to look at."""
        return self.id_of(self.select) + self.sample

    def id_of(self, name: str) -> int:
        """Return the id of a speaker's first request. Raises KeyError for an unknown name."""
        first = 1
        for speaker in self.speakers:
            if speaker.name == name:
                return first
            first += speaker.n
        raise KeyError(name)

    def run(self, **changes: Any) -> EventLog:
        """Return the log, the same each time and undated. `changes` are fields of EngineConfig."""
        drafter = None if self.drafter is None else self.drafter()
        config = msgspec.structs.replace(self.config, **changes)
        cost = self.cost if self.runner is None else self.runner()
        log = simulate(self.workload, config, cost=cost, drafter=drafter)
        started = log[0]
        assert isinstance(started, RunStarted)
        started.t.clear()
        return log


_CHATS = tuple(Speaker(name, 1, own=8, output=30) for name in ("Ada", "Bo", "Cleo", "Dev"))
_LONG = (*_CHATS, Speaker("Eva", 8, own=400, output=8))
_TABLE = tuple(Speaker(NAMES[i], 1, own=8, output=[4, 24, 6, 8][i % 4]) for i in range(12))
_TOGETHER = (
    Speaker("Ada", 1, shared=48, own=10, output=8),
    Speaker("Bo", 1, shared=48, own=14, output=8),
    Speaker("Cleo", 1, shared=48, own=12, output=8),
    Speaker("Dev", 1, shared=48, own=9, output=8),
)
_VISITS = tuple(
    Speaker(name, step, common=text, shared=tokens, own=3, output=3)
    for name, step, text, tokens in (
        ("Ada", 1, "letter", 24),
        ("Bo", 4, "clock", 24),
        ("Cleo", 7, "garden", 24),
        ("Ivo", 10, "letter", 24),
        ("Dev", 13, "winter", 32),
        ("Jun", 16, "letter", 24),
        ("Kim", 19, "clock", 24),
    )
)


def _mixture() -> MixtureRunner:
    return MixtureRunner(4, 0.1, layers=8, experts=16, per_token=2, skew=0.8, per_expert_ms=0.06)


_RECITED = "Say it again, word by word: " + COMMON["garden"]
_RECITAL = " " + COMMON["garden"].replace("trees, a well", "trees and a well")

_ALL = (
    Recipe(
        name="first_look",
        caption="Five people, four seats. Eva has waited four steps for a seat; Bo has just finished,"
        " and she takes his. Of her 26 prompt tokens 16 were in the cache, so she computes "
        "10, beside three others who each get their next token in the same forward pass.",
        speakers=(
            Speaker("Ada", 1, shared=16, own=9, output=10),
            Speaker("Bo", 1, own=30, output=8),
            Speaker("Cleo", 3, shared=16, own=6, output=12),
            Speaker("Dev", 5, own=70, output=6),
            Speaker("Eva", 6, shared=16, own=10, output=9),
        ),
        config=EngineConfig(token_budget=32, max_batch_size=4, max_kv_tokens=24 * 8, block_size=8),
        step=10,
        select="Eva",
    ),
    Recipe(
        name="hit",
        caption="Bo's prompt begins with the same 48 tokens as Ada's, which came a step earlier. "
        "Their keys and values are in the prefix tree, so Bo computes only 14 of 62 prompt "
        "tokens. Follow the lit path: three blocks that several requests read and that are "
        "computed only once.",
        speakers=(
            Speaker("Ada", 1, shared=48, own=10, output=8),
            Speaker("Bo", 2, shared=48, own=14, output=8),
            Speaker("Cleo", 2, shared=48, own=12, output=8),
            Speaker("Dev", 2, shared=48, own=9, output=8),
        ),
        config=EngineConfig(token_budget=64, max_kv_tokens=24 * 16),
        step=2,
        select="Bo",
    ),
    Recipe(
        name="full_prefix_hit",
        caption="Bo asks exactly what Ada asked, and all 48 tokens are in the cache. Bo still "
        "computes 16: the last token has to be computed to know what comes next, and hits "
        "come in whole blocks, so two blocks are reused and the third is computed again.",
        speakers=(
            Speaker("Ada", 1, shared=48, output=6),
            Speaker("Bo", 4, shared=48, output=6),
        ),
        config=EngineConfig(token_budget=64, max_kv_tokens=16 * 16),
        step=4,
        select="Bo",
    ),
    Recipe(
        name="in_batch_sharing",
        caption='The four requests of "hit" again, all in one step: no computation is saved, because '
        "the radix tree finds a prefix only after the step that computes it. But memory merges: at "
        "the end of the step the block tables of Bo, Cleo and Dev point to Ada's first three "
        'blocks, and nine blocks are free again. "hash_sharing" is the same in vLLM\'s cache.',
        speakers=_TOGETHER,
        config=EngineConfig(token_budget=256, max_kv_tokens=24 * 16),
        step=1,
        select="Bo",
    ),
    Recipe(
        name="hash_sharing",
        caption='The requests of "in_batch_sharing", with the prefix cache of vLLM: a block is found '
        "from the moment it is scheduled. Bo, Cleo and Dev find Ada's three blocks in the step "
        "that computes them, and 121 tokens are computed instead of 265. That is sound, because "
        "each layer writes all keys and values of a step before it reads any.",
        speakers=_TOGETHER,
        config=EngineConfig(token_budget=256, max_kv_tokens=24 * 16, prefix_cache="hash"),
        step=1,
        select="Bo",
    ),
    Recipe(
        name="split",
        caption="Ada's prompt is one edge of the tree, five blocks long. Bo shares three of them, so "
        "the edge is split there: above, what both read; below, the rest of Ada's prompt. Ada"
        " keeps reading all five, and nothing is copied.",
        speakers=(
            Speaker("Ada", 1, common="letter", shared=24, own=18, output=12),
            Speaker("Bo", 4, common="letter", shared=24, own=12, output=9),
        ),
        config=EngineConfig(token_budget=64, max_kv_tokens=24 * 8, block_size=8),
        step=4,
        select="Bo",
    ),
    Recipe(
        name="eviction",
        caption="Dev's document needs five blocks and three are free, so something has to be evicted."
        " It is not the oldest text, Ada's letter, which Ivo asked about three steps ago, but"
        " the least recently used one: the clock, last read at step 6. Go on to step 19, "
        "where Kim misses it.",
        speakers=_VISITS,
        config=EngineConfig(token_budget=64, max_kv_tokens=12 * 8, block_size=8),
        step=13,
        select="Dev",
    ),
    Recipe(
        name="hash_eviction",
        caption='The visits of "eviction", with the prefix cache of vLLM, which evicts block by block '
        "and the end of a text first. Dev's document needs two blocks more than are free: two of the "
        "clock's three go, and its beginning stays. Go on to step 19, where Kim finds those 8 tokens.",
        speakers=_VISITS,
        config=EngineConfig(
            token_budget=64, max_kv_tokens=12 * 8, block_size=8, prefix_cache="hash"
        ),
        step=13,
        select="Dev",
    ),
    Recipe(
        name="copy_on_write",
        caption="Three answers to Ada's prompt of 20 tokens share its three blocks. The last block is"
        " half full, and now each answer writes its own next word into it: two copy it first,"
        " and the last one may write in place. Two copies, not three; with a prompt of 24 "
        "tokens, none.",
        speakers=(Speaker("Ada", 1, own=20, output=10, n=3),),
        config=EngineConfig(token_budget=64, max_kv_tokens=16 * 8, block_size=8),
        step=2,
        select="Ada",
        sample=1,
    ),
    Recipe(
        name="preemption",
        caption="Memory is full and all three are in mid-sentence. Bo needs a block, so Cleo, who "
        "came last, loses all her blocks and goes to the front of the queue. Her work is not "
        "lost: the tree keeps what it can, and in step 27 she computes 5 of 45 tokens and "
        "goes on.",
        speakers=(
            Speaker("Ada", 1, shared=16, own=14, output=28),
            Speaker("Bo", 3, shared=16, own=8, output=24),
            Speaker("Cleo", 5, shared=16, own=14, output=20),
        ),
        config=EngineConfig(token_budget=32, max_batch_size=4, max_kv_tokens=14 * 8, block_size=8),
        step=20,
        select="Cleo",
    ),
    Recipe(
        name="thrash",
        caption="Lea's prompt needs ten blocks, and a request is admitted if its first chunk fits. So "
        "Lea is admitted and computes 60 tokens, finds no block for the rest, is preempted and begins "
        "again: 14 times, for nothing. With whole admission Lea waits until all of the prompt fits: "
        "372 tokens are computed instead of 989.",
        speakers=(
            Speaker("Ada", 1, own=12, output=48),
            Speaker("Bo", 1, own=12, output=48),
            Speaker("Lea", 4, own=80, output=8),
            Speaker("Max", 6, own=80, output=8),
        ),
        config=EngineConfig(
            token_budget=32,
            max_kv_tokens=16 * 8,
            block_size=8,
            prefix_cache="off",
            admission="first_chunk",
        ),
        step=10,
        select="Lea",
    ),
    Recipe(
        name="priority",
        caption="Memory has run out, and Ada needs a block. First come, first served would preempt "
        'Dev, who came last; under the policy "priority" the least urgent requests are '
        "preempted: Cleo's now, Bo's at step 18. Dev's urgent request is never interrupted "
        "and finishes at step 21 instead of 36.",
        speakers=(
            Speaker("Ada", 1, own=16, output=24, priority=5),
            Speaker("Bo", 1, own=16, output=24, priority=5),
            Speaker("Cleo", 1, own=16, output=24, priority=5),
            Speaker("Dev", 6, own=16, output=16, priority=0),
        ),
        config=EngineConfig(
            token_budget=64, max_batch_size=4, max_kv_tokens=96, block_size=8, policy="priority"
        ),
        step=10,
        select="Cleo",
    ),
    Recipe(
        name="static_batching",
        caption="One request is left in a batch of four, and eight people wait. A static batch admits"
        " no request before all its members have finished: three of four seats are free, and "
        "Eva, whose turn it could have been at step 5, has to wait until step 25.",
        speakers=_TABLE,
        config=EngineConfig(
            token_budget=64,
            max_batch_size=4,
            max_kv_tokens=16 * 16,
            prefix_cache=False,
            batching="static",
        ),
        step=20,
        select="Eva",
    ),
    Recipe(
        name="continuous_batching",
        caption='The people of "static_batching". Ada has finished in step 4, and in the very next '
        "step Eva has her seat: her prompt is computed in the same forward pass as the "
        "others' next tokens. All twelve are done after 40 steps instead of 72.",
        speakers=_TABLE,
        config=EngineConfig(
            token_budget=64, max_batch_size=4, max_kv_tokens=16 * 16, prefix_cache=False
        ),
        step=5,
        select="Eva",
    ),
    Recipe(
        name="mixed_step",
        caption="Four people chat, and Eva comes with 400 tokens. Her prompt is cut into chunks that "
        "fill what the others leave of the budget: 60 of her tokens beside 4 decodes in one "
        "forward pass. No one waits longer than 26 ms for a word, and Eva's answer begins "
        "after seven chunks.",
        speakers=_LONG,
        config=EngineConfig(token_budget=64, max_kv_tokens=40 * 16, prefix_cache=False),
        step=8,
        select="Eva",
    ),
    Recipe(
        name="chunk_budget",
        caption='The people of "mixed_step" with a budget of 512 tokens: Eva has 400, they fit into '
        "one step, and Ada, like all the others, waits 111 ms for her next word. Chunked "
        "prefill is on, and does not help. It is the budget that bounds a step; chunks are "
        "what makes a small budget possible.",
        speakers=_LONG,
        config=EngineConfig(token_budget=512, max_kv_tokens=40 * 16, prefix_cache=False),
        step=8,
        select="Ada",
    ),
    Recipe(
        name="overload",
        caption="In 26 steps 26 people have come, 8 have had a seat and 18 wait: requests come faster"
        " than they are served, and the queue grows and grows. Zoe, who comes now, gets her "
        "seat at step 90, because she waits for the work of all those in front of her. A "
        "longer queue would not help, only fewer requests or a faster machine.",
        speakers=tuple(
            Speaker(name, 1 + i, own=12 + 5 * i % 13, output=10 + 7 * i % 11)
            for i, name in enumerate(NAMES[:26])
        ),
        config=EngineConfig(token_budget=32, max_batch_size=4, max_kv_tokens=512),
        step=26,
        select="Zoe",
    ),
    Recipe(
        name="fairness",
        caption="Ada has sent six requests, and Bo, a moment later, one. First come, first served "
        'would serve all six first, and Bo would get a seat at step 37. The policy "fair" '
        "counts the tokens that each name has had: Bo's count is the smallest, so he is next,"
        " at step 13.",
        speakers=(
            *(Speaker("Ada", 1, own=14 + i, output=12) for i in range(6)),
            Speaker("Bo", 3, own=12, output=12),
        ),
        config=EngineConfig(token_budget=64, max_batch_size=2, max_kv_tokens=512, policy="fair"),
        step=13,
        select="Bo",
    ),
    Recipe(
        name="speculation",
        caption="Ada asks for a text to be repeated, and a drafter looks up how it went on. Here four"
        " tokens were proposed: the first two are right, the third is not, so it is replaced "
        "and the fourth is dropped. One step, three tokens. Ada's answer is done at step 9; "
        "Bo's, of equal length and without drafts, at step 24.",
        speakers=(
            Speaker("Ada", 1, prompt=_RECITED, output=24, answer=_RECITAL),
            Speaker("Bo", 1, own=16, output=24),
        ),
        config=EngineConfig(token_budget=64, max_kv_tokens=512),
        drafter=PromptLookup,
        step=4,
        select="Ada",
    ),
    Recipe(
        name="experts",
        caption="A mixture of experts: in each of 8 layers a router sends every token to 2 of 16 "
        "experts. Eva's prompt and three decodes are 61 tokens, and 127 of the 128 experts have work. "
        "The busiest, expert 9 of layer 7, has 31 tokens, four times the mean. The step before "
        "needed only 38 experts for its 3 tokens: few tokens read few weights.",
        speakers=(
            Speaker("Ada", 1, own=20, output=16),
            Speaker("Bo", 1, own=9, output=20),
            Speaker("Cleo", 2, own=14, output=14),
            Speaker("Eva", 8, own=58, output=10),
        ),
        config=EngineConfig(token_budget=64, max_batch_size=4, max_kv_tokens=256),
        runner=_mixture,
        step=8,
        select="Eva",
    ),
    Recipe(
        name="adapters",
        caption="Three adapters and the base model share an engine that has slots for two. Dev has "
        "waited three steps with the adapter sql; Bo has just finished, so no request uses chat, and "
        "sql takes its slot. His prompt begins with the same 24 tokens as everyone's, but KV of "
        "another adapter would be wrong for him, so he computes all 31. Gus needs chat again and "
        "waits until Dev is done; its KV is still cached then, because KV outlives the slot.",
        speakers=(
            Speaker("Ada", 1, shared=24, own=6, output=18, adapter="legal"),
            Speaker("Bo", 1, shared=24, own=8, output=6, adapter="chat"),
            Speaker("Cleo", 2, shared=24, own=5, output=16),
            Speaker("Dev", 4, shared=24, own=7, output=10, adapter="sql"),
            Speaker("Eva", 5, shared=24, own=9, output=8, adapter="legal"),
            Speaker("Gus", 7, shared=24, own=6, output=6, adapter="chat"),
        ),
        config=EngineConfig(
            token_budget=64, max_batch_size=6, max_kv_tokens=32 * 8, block_size=8, max_loras=2
        ),
        cost=Cost(10, 0.25, per_adapter_ms=0.5, adapter_load_ms=4),
        step=7,
        select="Dev",
    ),
    Recipe(
        name="thirty",
        caption="Thirty people press Enter together. In step 1 the budget is enough for two prompts; "
        "then the 24 tokens that all prompts begin with are in the cache, and in step 2 Cleo "
        "and five more take a seat, each computing only their own tokens. 22 wait. Dora, last"
        " in line, is admitted at step 47.",
        speakers=tuple(
            Speaker(name, 1, shared=24, own=6 + 5 * i % 9, output=8 + 7 * i % 13)
            for i, name in enumerate(NAMES)
        ),
        config=EngineConfig(token_budget=64, max_batch_size=8, max_kv_tokens=30 * 8, block_size=8),
        step=2,
        select="Cleo",
    ),
)

SCENARIOS = {one.name: one for one in _ALL}


def scenario(name: str) -> Recipe:
    """Return a scenario by its name. Raises LookupError, which lists the names, for an unknown one."""
    if name not in SCENARIOS:
        near = get_close_matches(name, SCENARIOS, 1, 0.5)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise LookupError(f"there is no scenario {name!r}.{hint} There are {', '.join(SCENARIOS)}")
    return SCENARIOS[name]


def write(scenarios: Iterable[Recipe], folder: Path) -> None:
    """Write every log into a folder, and captions, steps and requests into its `gallery.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    moments = {}
    for one in scenarios:
        packed = gzip.compress(one.run().to_bytes(), mtime=0)
        (folder / f"{one.name}.jsonl.gz").write_bytes(packed)
        moments[one.name] = {"caption": one.caption, "step": one.step, "select": one.request}
    (folder / "gallery.json").write_text(json.dumps(moments, indent=1) + "\n")


if __name__ == "__main__":
    write(_ALL, Path(sys.argv[1]))
