"""Scripts of samples that call the calculator, and an engine that follows them.

In a script { and } stand for the tokens around a call, [ and ] for those around an answer, $ for the
end. Where the engine must force tokens the runner says question marks, which show if it does not.
"""

from engine import CostRunner, Engine, EngineConfig, SamplingParams
from engine.core.byte_tokenizer import ByteTokenizer
from engine.core.log import vocabulary as v
from engine.core.request import Request
from engine.extensions.calculator import evaluate

TOKENIZER = ByteTokenizer()
CALL, END_CALL = TOKENIZER.encode("<|python_start|><|python_end|>")[1:]
OUTPUT, END_OUTPUT = TOKENIZER.encode("<|output_start|><|output_end|>")[1:]
END = TOKENIZER.token_id("<|assistant_end|>")


def ids(text: str) -> list[int]:
    """Token ids; { and } stand for the tokens around a call, [ and ] for those around an answer."""
    marks = {"{": CALL, "}": END_CALL, "[": OUTPUT, "]": END_OUTPUT, "$": END}
    return [marks.get(character, ord(character)) for character in text]


def answered(text: str) -> str:
    """The text with the answer behind each call that has one."""
    whole, call = "", None
    for character in text:
        whole += character
        if character == "{":
            call = ""
        elif character == "}":
            answer = evaluate(call) if call else None
            whole += f"[{answer}]" if answer is not None else ""
            call = None
        elif call is not None:
            call += character
    return whole


def script(text: str) -> list[int]:
    """Return the runner's tokens that lead to `answered(text)`."""
    said: list[int] = []
    inside = False
    for character in answered(text):
        inside = inside or character == "["
        said += ids("?" if inside else character)
        inside = inside and character != "]"
    return said


def engine_that_says(*texts: str, drafter=None, policy=None, tokenizer=None, **config) -> Engine:
    """Sample or request i generates texts[i - 1], then stops."""
    runner = CostRunner(1, 1, outputs={i: script(text) for i, text in enumerate(texts, start=1)})
    settings = EngineConfig(**{"max_kv_tokens": 1024, "block_size": 4} | config)
    tokenizer = tokenizer or TOKENIZER
    parts = {"drafter": drafter, "policy": policy, "tokenizer": tokenizer, "clock": runner.clock}
    return Engine(runner, settings, **parts)


def submit(engine: Engine, prompt: str = "q", **params) -> Request:
    return engine.submit(ids(prompt), SamplingParams(**{"max_tokens": 60} | params))


def forced(engine: Engine, request: int) -> list[int]:
    """The tokens that the log marks as forced."""
    rows = [row for event in engine.log.of(v.StepFinished) for row in event.tokens]
    return [
        token
        for row in rows
        if row.request == request and row.forced
        for token in row.ids[-row.forced :]
    ]
