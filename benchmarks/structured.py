"""Structured output: 1,000 random schemas among plain requests, the cost of a mask, hostile grammars.

`python -m benchmarks structured` prints

- of the finished answers, how many are valid, and how many ended by the grammar
- whether all tokens were the same with tight memory, preemptions, drafts, asynchronous scheduling and
  jump-forward as without, and whether plain requests got the tokens they get alone
- the time of a mask with the bundled model's vocabulary and with one of 150,000 tokens
- the speed of plain requests beside structured ones
- what hostile grammars cost: time, memory, answer
"""

import importlib
import itertools
import json
import resource
import statistics
import subprocess
import sys
import time
from collections import Counter
from random import Random

from benchmarks.pairs import compare
from benchmarks.schemas import Mixed, fits, random_schema, random_settings
from engine import Engine, EngineConfig, SamplingParams
from engine.core.byte_tokenizer import ByteTokenizer
from engine.core.log import vocabulary as v
from engine.core.offline import Completion
from engine.core.sampling_params import StructuredOutput
from engine.core.tokenizer import Tokenizer
from engine.extensions.grammars.grammar import GrammarCompiler
from engine.extensions.grammars.grammar_error import GrammarError
from engine.models import loader
from visualizer import read

SCHEMAS = 1000
AMPLE = EngineConfig(token_budget=256, max_kv_tokens=8192, jump_forward=False)


def main() -> None:
    """Measure, print and save."""
    figures: dict[str, object] = {"schemas": schemas(SCHEMAS)}
    _, tokenizer = loader.load("bundled")
    figures["mask_us"] = {
        f"{found.vocab_size:,} tokens": mask_times(found)
        for found in (tokenizer, LargeVocabulary())
    }
    figures["beside"] = beside()
    figures["hostile"] = [hostile(name) for name in HOSTILE]
    importlib.import_module("benchmarks.report").save("structured", figures)  # needs matplotlib


def schemas(count: int, first: int = 0) -> dict[str, int]:
    """Serve random schemas among plain requests, 10 and 4 at a time, in two ways each."""
    runner, tokenizer = loader.load("bundled")
    counts: Counter[str] = Counter()

    def serve(
        mixed: Mixed, config: EngineConfig, **parts: object
    ) -> tuple[list[Completion], Engine]:
        engine = Engine(runner, config, tokenizer=tokenizer, **parts)  # type: ignore[arg-type]
        return engine.complete(mixed.prompts, mixed.params, progress=False), engine

    for seed in range(first, first + -(-count // 10)):
        rng = Random(seed)
        mixed = Mixed.draw(rng, shapes=10, plain=4)
        expected, _ = serve(mixed, AMPLE)
        config, parts = random_settings(rng)
        done, engine = serve(mixed, config, **parts)
        alone = mixed.only_plain()
        neighbours, _ = serve(alone, AMPLE)
        counts["schemas"] += 10
        counts["preemptions"] += sum(isinstance(event, v.Preempted) for event in engine.log)
        counts["forced tokens"] += sum(token.forced for token in read(engine.log).token_rows)
        counts["asynchronous"] += config.async_scheduling
        counts["with drafts"] += bool(parts)
        for schema, one, same in zip(mixed.samples(), done, expected, strict=True):
            counts["different tokens"] += one.token_ids != same.token_ids
            if schema is not None:
                counts["answers"] += 1
                counts["tokens"] += len(one.token_ids)
                counts[f"ended by {one.finish_reason}"] += 1
                counts["invalid"] += one.finish_reason == "stop" and not fits(one.text, schema)
        beside = [one for one, schema in zip(done, mixed.samples(), strict=True) if schema is None]
        counts["neighbours"] += len(beside)
        counts["changed neighbours"] += sum(
            one.token_ids != same.token_ids for one, same in zip(beside, neighbours, strict=True)
        )
    for name in ("invalid", "different tokens", "changed neighbours"):
        counts[name] += 0
    print(json.dumps(counts, indent=1), flush=True)
    return dict(counts)


class LargeVocabulary(ByteTokenizer):
    """Bytes, nanochat's special tokens and 150,000 words of two to six letters."""

    def __init__(self) -> None:
        super().__init__()
        letters = "etaoinshrdlu"
        words = itertools.chain.from_iterable(
            itertools.product(letters, repeat=length) for length in (2, 3, 4, 5)
        )
        self._table += ["".join(word).encode() for word in itertools.islice(words, 75_000)]
        self._table += [b" " + word for word in self._table[265:]]
        self.vocab_size = len(self._table)


def mask_times(tokenizer: Tokenizer) -> dict[str, float]:
    """Walk random outputs of 40 schemas; return the microseconds of a mask."""
    compiler, rng, took = GrammarCompiler(tokenizer), Random(0), list[float]()
    compiled = list[float]()
    for _ in range(40):
        schema = json.dumps(random_schema(rng))
        start = time.perf_counter()
        constraint = compiler.constraint(StructuredOutput("json_schema", schema))
        compiled.append(time.perf_counter() - start)
        output: list[int] = []
        for _ in range(120):
            start = time.perf_counter()
            mask = constraint.mask(output)
            took.append(time.perf_counter() - start)
            bits = [i for i, bit in enumerate(reversed(f"{mask:b}")) if bit == "1"]
            output.append(rng.choice(bits))
            if constraint.is_complete(output):
                break
    times = {
        "mean": statistics.mean(took) * 1e6,
        "p99": statistics.quantiles(took, n=100)[-1] * 1e6,
        "worst": max(took) * 1e6,
        "compile": statistics.median(compiled) * 1e6,
    }
    shown = ", ".join(f"{name} {value:.0f}" for name, value in times.items())
    print(f"{tokenizer.vocab_size:,} tokens, {len(took)} masks, microseconds: {shown}", flush=True)
    return times


def beside() -> dict[str, object]:
    """Return the speed of 8 plain rows beside 8 structured ones, over that of 16 plain ones."""
    runner, tokenizer = loader.load("bundled")
    config = EngineConfig(
        token_budget=256, max_batch_size=16, max_kv_tokens=4096, jump_forward=False
    )
    plain = SamplingParams(max_tokens=64, ignore_eos=True)
    shape = SamplingParams(
        max_tokens=64, ignore_eos=True, structured=StructuredOutput("regex", r'[{}":a-z0-9, ]{400}')
    )

    def serve(other: SamplingParams) -> None:
        engine = Engine(runner, config, tokenizer=tokenizer)
        engine.complete(["Once upon a time"] * 16, [plain, other] * 8, progress=False)

    ratio = compare("16 rows, 8 of them structured, over 16 plain rows",
                    lambda: serve(shape), lambda: serve(plain), 7)  # fmt: skip
    print(ratio)
    return ratio.figures()


# Hostile grammars: each is compiled, and its first 50 masks computed, in a process of its own.

_CHAIN = "start: r0" + "".join(f"\nr{i}: r{i + 1}" for i in range(4500)) + '\nr4500: "a"'
_DOUBLING = "start: T0" + "".join(f"\nT{i}: T{i + 1} T{i + 1}" for i in range(40)) + '\nT40: "a"'
_REFS = {str(i): {"items": {"$ref": f"#/$defs/{i + 1}"}} for i in range(1300)}
_EITHER = [
    {"oneOf": [{"properties": {f"k{i}": {"const": j}}} for j in range(3)]} for i in range(14)
]
HOSTILE: dict[str, tuple[str, object]] = {
    "(a|b)*a(a|b){200}": ("regex", "(a|b)*a(a|b){200}"),
    "((((a{0,100}){0,100}){0,100}){0,100})": ("regex", "((((a{0,100}){0,100}){0,100}){0,100})"),
    "a?^1300 a^1300": ("regex", "a?" * 1300 + "a" * 1300),
    "a?^5000 a^5000": ("regex", "a?" * 5000 + "a" * 5000),
    "30,000 parentheses": ("regex", "(" * 30_000 + ")" * 30_000),
    "recursive schema": ("json_schema", {"type": "object", "additionalProperties": {"$ref": "#"}}),
    "schema that is itself": ("json_schema", {"$ref": "#"}),
    "chain of 1,300 $refs": ("json_schema", {"$ref": "#/$defs/0", "$defs": _REFS | {"1300": {}}}),
    "14 oneOf in an allOf": ("json_schema", {"allOf": _EITHER}),
    "5,000 levels of items": ("json_schema", '{"items":' * 5000 + "{}" + "}" * 5000),
    "schema of 1 MB": ("json_schema", {"enum": [f"value {i}" for i in range(60_000)]}),
    "enum of 60 KB": ("json_schema", {"enum": [f"value {i}" for i in range(4000)]}),
    "1,700 required keys": (
        "json_schema",
        {
            "type": "object",
            "properties": {f"p{i}": {"type": "integer"} for i in range(1700)},
            "required": [f"p{i}" for i in range(1700)],
        },
    ),
    "multipleOf 999,983": ("json_schema", {"type": "integer", "multipleOf": 999_983}),
    "ambiguous grammar": ("grammar", 'start: a\na: a a a | a a | "x" |'),
    "chain of 4,500 rules": ("grammar", _CHAIN),
    "40 doublings": ("grammar", _DOUBLING),
    "20,000 parentheses": ("grammar", "start: " + "(" * 20_000 + '"a"' + ")" * 20_000),
}


def hostile(name: str) -> str:
    """Compile a hostile grammar in a process of its own; return its time, memory and answer."""
    command = [sys.executable, "-m", "benchmarks.structured", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    line = done.stdout.strip() or f"{name}: crashed with {done.returncode}"
    print(line, flush=True)
    return line


def _hostile(name: str) -> None:
    _, tokenizer = loader.load("bundled")
    compiler = GrammarCompiler(tokenizer)
    compiler.constraint(StructuredOutput("regex", "a"))
    kind, text = HOSTILE[name]
    before, start = _megabytes(), time.perf_counter()
    worst, rng, output = 0.0, Random(0), list[int]()
    try:
        text = text if isinstance(text, str) else json.dumps(text)
        constraint = compiler.constraint(StructuredOutput(kind, text))  # type: ignore[arg-type]
        answer, compiled = "compiled", time.perf_counter() - start
        for _ in range(50):
            at = time.perf_counter()
            mask = constraint.mask(output)
            worst = max(worst, time.perf_counter() - at)
            output.append(rng.choice([i for i in range(1536) if mask >> i & 1]))
            if constraint.is_complete(output) or constraint.error:
                break
        answer = constraint.error or answer
    except GrammarError as error:
        answer, compiled = str(error)[:90], time.perf_counter() - start
    memory = _megabytes() - before
    print(f"{name:40} {compiled:6.2f} s {memory:5.0f} MB, mask {worst * 1e3:4.0f} ms  {answer}")


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    _hostile(sys.argv[1])
