"""Text as the engine streams it: characters that are spread over tokens, prompts, samples and steps.

Both detokenizers go through it: `bytes` and `byte_level` read a table of bytes, `sentencepiece` decodes
a window. Texts come byte by byte, as far as that goes, which is the worst a vocabulary can do.
"""

import pytest

from engine import CostRunner, Engine, EngineConfig, SamplingParams
from engine.core.byte_tokenizer import ByteTokenizer
from engine.core.log import vocabulary as v
from engine.core.log.fold import State

BROKEN = "\ufffd"
TEXTS = {
    "emoji": "😀 ok 🚀🚀",
    "joined": "👩‍👩‍👧‍👦 and 🏳️‍🌈",
    "skin tones": "👍🏽👍🏿👍",
    "flags": "🇩🇪🇫🇷 🏴\U000e0067\U000e0062\U000e007f",
    "one accent, two spellings": "é = e\u0301, ế = e\u0302\u0301",
    "stacked marks": "Z\u0335\u0321\u0300a\u0300\u0301l",
    "syllables and their letters": "한 = \u1112\u1161\u11ab",
    "right to left": "שלום \u200fعربية\u200e!",
    "beyond the first plane": "𝒜𝔅𐍈",
    "line and width": "a\u2028b\u00a0c\u200bd\ufeffe",
    "the sign itself": "x\ufffdy\ufffd\ufffdz",
}


def spell(tokenizer, text: str | bytes) -> list[int]:
    """A text's tokens, byte by byte where the vocabulary has them."""
    data = text.encode() if isinstance(text, str) else text
    if isinstance(tokenizer, ByteTokenizer):
        return list(data)
    vocabulary = tokenizer._tokenizer.get_vocab()
    if tokenizer._byte_level:
        return [tokenizer._table.index(bytes([byte])) for byte in data]
    plain = {" ": "▁"}
    return [
        vocabulary.get(plain.get(chr(byte), chr(byte)), vocabulary[f"<0x{byte:02X}>"])
        for byte in data
    ]


def engine_that_says(tokenizer, outputs, drafter=None, **config) -> Engine:
    """Request i generates outputs[i - 1], token ids."""
    runner = CostRunner(1, 1, outputs=dict(enumerate(outputs, start=1)))
    settings = EngineConfig(
        **{"max_kv_tokens": 8192, "block_size": 4, "max_batch_size": 64} | config
    )
    return Engine(runner, settings, tokenizer=tokenizer, clock=runner.clock, drafter=drafter)


def run(engine: Engine) -> dict[int, list[str]]:
    """Return the streamed pieces of each request."""
    pieces: dict[int, list[str]] = {}
    while engine.has_work():
        for gained in engine.step().tokens:
            pieces.setdefault(gained.request.id, []).extend(gained.texts)
    return pieces


def logged(engine: Engine, request: int) -> list[str]:
    rows = [row for event in engine.log.of(v.StepFinished) for row in event.tokens]
    return [text for row in rows if row.request == request for text in row.texts]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_prompt_may_end_anywhere_and_the_stream_goes_on_from_there(tokenizer, text) -> None:
    """Try every cut in one batch: no broken character, no text lost or repeated."""
    ids = spell(tokenizer, "a" + text + "!")  # the last one releases a sign that was held back
    cuts = range(1, len(ids))
    engine = engine_that_says(tokenizer, [ids[cut:] for cut in cuts])
    requests = []
    for cut in cuts:
        params = SamplingParams(max_tokens=len(ids) - cut, ignore_eos=True)
        requests.append(engine.submit(ids[:cut], params))
    streamed = run(engine)
    for cut, request in zip(cuts, requests, strict=True):
        pieces = streamed[request.id]
        prompt = request.texts[:cut]
        assert "".join(prompt + pieces) == "a" + text + "!" == tokenizer.decode(ids)
        assert len(pieces) == len(ids) - cut
        assert pieces == request.delivered == logged(engine, request.id)
        if BROKEN not in text:
            assert BROKEN not in "".join(pieces)
            assert all(len(piece) <= 1 for piece in pieces)


def test_an_output_that_stops_inside_a_character_shows_that_once_and_last(tokenizer) -> None:
    whole = spell(tokenizer, "e😀")
    for length, cut in [(n, cut) for n in range(2, len(whole)) for cut in range(1, n)]:
        ids = whole[:length]
        engine = engine_that_says(tokenizer, [ids[cut:]])
        request = engine.submit(ids[:cut], SamplingParams(max_tokens=length - cut))
        pieces = run(engine)[request.id]
        assert "".join(pieces[:-1]) == ""
        assert set(pieces[-1]) == {BROKEN}
        assert "".join(request.texts) == tokenizer.decode(ids)
        if getattr(tokenizer, "_byte_level", True):  # this tokenizer spells each byte on its own
            assert pieces[-1] == BROKEN


def test_samples_that_fork_inside_a_character_complete_it_each_for_itself(tokenizer) -> None:
    prompt = spell(tokenizer, "Look: 😀")[:-2]  # its last two bytes differ from sample to sample
    ends = [b"\x98\x80!", b"\x9a\x80?", b"\x98\x81\xf0\x9f\x9a\x80", b"\x91\x8d\xf0\x9f\x8f\xbd"]
    outputs = [spell(tokenizer, end) for end in ends]
    engine = engine_that_says(tokenizer, outputs)
    longest = max(map(len, outputs))
    params = SamplingParams(max_tokens=longest, n=4, temperature=1.0)
    first = engine.submit(prompt, params)
    streamed = run(engine)
    shown = ["".join(streamed[first.id + i][: len(output)]) for i, output in enumerate(outputs)]
    assert shown == ["😀!", "🚀?", "😁🚀", "👍🏽"]


@pytest.mark.parametrize("budget", [3, 64])
def test_preemption_inside_a_character_changes_no_text(tokenizer, budget) -> None:
    texts = ["👩‍👩‍👧 한국어 e\u0301", "🇩🇪 naïve 👍🏽", "العربية 😀 𝒜"]
    outputs = [spell(tokenizer, text) for text in texts]
    inside = 0
    for blocks in range(9, 16):
        engine = engine_that_says(tokenizer, outputs, max_kv_tokens=blocks * 4, token_budget=budget)
        requests = [
            engine.submit(spell(tokenizer, "q" * (i + 1)), SamplingParams(max_tokens=len(output)))
            for i, output in enumerate(outputs)
        ]
        streamed = run(engine)
        assert ["".join(streamed[request.id]) for request in requests] == texts
        state = State()
        for event in engine.log:
            if isinstance(event, v.Preempted):
                inside += state.requests[event.request].texts[-1] == ""
            state.apply(event)
    assert inside >= 3, "no request was preempted inside a character"


def test_an_abort_inside_a_character_leaves_whole_characters(tokenizer) -> None:
    said = spell(tokenizer, "a😀b")
    for steps in range(1, len(said) + 1):
        engine = engine_that_says(tokenizer, [said])
        request = engine.submit(spell(tokenizer, "q"), SamplingParams(max_tokens=40))
        for _ in range(steps):
            engine.step()
        engine.abort(request.id)
        assert "a😀b".startswith(request.output_text)
        assert len(request.delivered) == steps


def test_half_a_character_before_a_calculators_answer_does_not_swallow_it() -> None:
    """A special token ends what was incomplete; the forced tokens are text of their own."""
    tokenizer = ByteTokenizer()
    said = [*"😀".encode()[:2], *tokenizer.encode("<|python_start|>1+1<|python_end|>???b")[1:]]
    engine = engine_that_says(tokenizer, [said])
    request = engine.submit(b"q", SamplingParams(max_tokens=len(said)))
    run(engine)
    expected = "<|python_start|>1+1<|python_end|><|output_start|>2<|output_end|>b"
    assert request.output_text == BROKEN + expected
