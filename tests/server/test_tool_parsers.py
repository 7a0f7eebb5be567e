"""Tool calls in a model's output: every format, however the output is cut into tokens."""

import json
import random

import pytest

from engine.models.text.chat_template import ChatTemplate
from server.api.openai.tool_parsers import TOOL_PARSERS, NamedParser, RequiredParser, find_parser
from server.api.openai.tool_reader import CallArguments, CallStart, ToolParser

PARSERS = TOOL_PARSERS | {"required": RequiredParser, "named": lambda: NamedParser("f")}
WILD = {"a": '}]{[ "</tool_call>" \\ <|python_tag|> [TOOL_CALLS] é 😀', "b": [{}, [1.5e3, None]]}


def call(name, arguments):
    return [CallStart(name), CallArguments(arguments)]


def parse(parser: ToolParser, pieces: list[str]) -> list:
    events = [event for piece in pieces for event in parser.feed(piece)] + parser.finish()
    joined: list = []
    for event in events:
        last = joined[-1] if joined else None
        if isinstance(event, str) and isinstance(last, str):
            joined[-1] += event
        elif isinstance(event, CallArguments) and isinstance(last, CallArguments):
            joined[-1] = CallArguments(last.text + event.text)
        else:
            joined.append(event)
    return joined


# Outputs, and what they mean.
F, G = '{"name": "f", "arguments": {}}', '{"name": "g", "arguments": {"y": {"z": []}}}'
X = '{"name": "f", "arguments": {"x": 1}}'
LLAMA_F, LLAMA_G = '{"name": "f", "parameters": {}}', '{"name": "g", "parameters": {"y": 2}}'
OPEN, CLOSE = "<tool_call>", "</tool_call>"
f, g, x = call("f", "{}"), call("g", '{"y": {"z": []}}'), call("f", '{"x": 1}')
y = call("g", '{"y": 2}')
LATER = f"The tag {OPEN} begins it:"
HERMES = [
    ("Just text, a < b.", ["Just text, a < b."]),
    ("", []),
    (f"{OPEN}\n{X}\n{CLOSE}", x),
    (f"Let me see.\n\n{OPEN}\n{F}\n{CLOSE}\n{OPEN}\n{G}\n{CLOSE}\n", ["Let me see.", *f, *g]),
    # The arguments before the name, other members, and arguments as a string.
    (f'{OPEN}{{ "arguments": {{"x": 1}}, "name": "f"}}{CLOSE}', x),
    (f'{OPEN}{{"id": 3, "name": "f", "arguments": {{"x": 1}}, "k": "}}"}}{CLOSE}', x),
    (f'{OPEN}{{"name": "f", "arguments": "{{\\"x\\": 1}}"}}{CLOSE}', x),
    # Text after a call is content.
    (f"{OPEN}{F}{CLOSE}\nDone.", [*f, "\nDone."]),
    # A call that lacks its last brace, or its end tag.
    (f"{OPEN}{F[:-1]}{CLOSE}", f),
    (f"{OPEN}{F}", f),
    # Cut off: what is there of the arguments, or content.
    (f'{OPEN}{{"name": "f", "arguments": {{"x": "unfini', call("f", '{"x": "unfini')),
    (f'{OPEN}{{"name": "f", "argum', [f'{OPEN}{{"name": "f", "argum']),
    ("Hello <tool_ca", ["Hello <tool_ca"]),
    ("Hello \n", ["Hello \n"]),
    # The arguments are not JSON: the client sees what the model wrote.
    (f'{OPEN}{{"name": "f", "arguments": {{\'x\': 1}}}}{CLOSE}', call("f", "{'x': 1}")),
    # Something that is not a call does not hide one that is.
    (f"{LATER} {OPEN}{F}{CLOSE}", [LATER, *f]),
]
NO_CALL = {
    "hermes": [
        f"Hi {OPEN}\nf(x)\n{CLOSE}",
        f'{OPEN}{{"name": "f"}}{CLOSE}',
        f'{OPEN}{{"arguments": {{}}}}{CLOSE}',
        f'{OPEN}{{"name": 3, "arguments": {{}}}}{CLOSE}',
        f'{OPEN}{{"name": "", "arguments": {{}}}}{CLOSE}',
        f'{OPEN}{{"name": "f", "arguments": nothing}}{CLOSE}',
        f'{OPEN}{{"name": "\\ud800", "arguments": {{}}}}{CLOSE}',
        f"a {OPEN} b {OPEN}",
        f"{OPEN}[]{CLOSE}",
    ],
    "llama3_json": [
        '{"name": "Ada", "age": 3}',
        '{"name": "Ada", "age": 3',
        f"An example: {LLAMA_F}",
        '<|python_tag|>search.call(query="x")',
        "  two spaces",
    ],
    "mistral": [
        "[TOOL_CALLS] no call here",
        "[TOOL_CALLS][1, 2]",
        "[TOOL_CALLS][]",
        "[TOOL_CALLS]" + "x" * 300 + '{"x": 1}',
        "An [array] of [TOOL",
    ],
}
OUTPUTS = {
    "hermes": HERMES,
    "llama3_json": [
        ('{"name": "f", "parameters": {"x": 1}}', x),
        (f"\n{X}\n", x),
        ('{"type": "function", "name": "f", "parameters": {}}', f),
        (f"<|python_tag|>{LLAMA_F}; {LLAMA_G}", [*f, *y]),
        (f"I will.<|python_tag|>{LLAMA_F}", ["I will.", *f]),
    ],
    "mistral": [
        (f"[TOOL_CALLS][{X}]", x),
        (f'Sure.[TOOL_CALLS] [{F[:-1]}, "id": "123456789"}}, {G}]', ["Sure.", *f, *g]),
        ('[TOOL_CALLS]get_x[ARGS]{"x": 1}', call("get_x", '{"x": 1}')),
        (
            '[TOOL_CALLS]f{"x": 1}[TOOL_CALLS]g-h[CALL_ID]123456789[ARGS]{}',
            [*x, *call("g-h", "{}")],
        ),
        (f"[TOOL_CALLS][{X[:-3]}[1, ", call("f", '{"x": [1, ')),
    ],
    "required": [
        ('[{"name": "f", "parameters": {"x": 1}}]', x),
        (
            f'[{LLAMA_F}, {{"name": "g", "parameters": {{"y": "]"}}}}]',
            [*f, *call("g", '{"y": "]"}')],
        ),
        ('[{"name": "f", "parameters": {"x": ', call("f", '{"x": ')),
        ('[{"name": "f", "par', []),
    ],
    "named": [('{"x": 1}', x), ("", [])],
}
for name, texts in NO_CALL.items():
    OUTPUTS[name] += [(text, [text]) for text in texts]
CASES = [(name, text, events) for name, cases in OUTPUTS.items() for text, events in cases]


@pytest.mark.parametrize(("name", "text", "events"), CASES)
def test_an_output_means_the_same_however_it_is_cut(name, text, events):
    assert parse(PARSERS[name](), [text]) == events
    assert parse(PARSERS[name](), list(text)) == events
    pick = random.Random(text)
    for _ in range(50):
        cuts = sorted(pick.choices(range(len(text) + 1), k=pick.randrange(len(text) + 2)))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        assert parse(PARSERS[name](), pieces) == events, pieces


FRAMES = {
    "hermes": '<tool_call>\n{"name": "f", "arguments": %s}\n</tool_call>',
    "llama3_json": '{"name": "f", "parameters": %s}',
    "mistral": '[TOOL_CALLS][{"name": "f", "arguments": %s}]',
    "required": '[{"name": "f", "parameters": %s}]',
    "named": "%s",
}


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("indent", [None, 2])
def test_marks_inside_the_arguments_are_arguments(name, indent):
    arguments = json.dumps(WILD, ensure_ascii=False, indent=indent)
    for pieces in ([FRAMES[name] % arguments], list(FRAMES[name] % arguments)):
        assert parse(PARSERS[name](), pieces) == call("f", arguments)


@pytest.mark.parametrize("name", FRAMES)
def test_arguments_are_streamed_as_they_come(name):
    """No text of the arguments is held back, except what may be the beginning of a mark."""
    arguments = json.dumps({"text": "word " * 20})
    parser, read = PARSERS[name](), ""
    before, _, _ = FRAMES[name].partition("%s")
    parser.feed(before)
    for size, character in enumerate(arguments, 1):
        events = parser.feed(character)
        read += "".join(event.text for event in events if isinstance(event, CallArguments))
        assert read == arguments[:size]


@pytest.mark.parametrize("name", ["hermes", "llama3_json", "mistral"])
def test_text_is_streamed_up_to_its_last_space(name):
    parser, read = TOOL_PARSERS[name](), ""
    for piece in ("Once", " upon", " a", " time"):
        read += "".join(map(str, parser.feed(piece)))
    assert read == "Once upon a time"


CONVERSATION = [
    {"role": "user", "content": "Weather?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "123456789", "type": "function", "function": {"name": "f", "arguments": WILD}}
        ],
    },
]
# What the models' own templates write for an assistant's call.
TEMPLATES = {
    "hermes": """{% if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}
        {%- for m in messages %}{% for c in m.tool_calls or [] %}
        {{- '<tool_call>\n{"name": "' + c.function.name + '", "arguments": ' }}
        {{- c.function.arguments | tojson + '}\n</tool_call>' }}{% endfor %}{% endfor %}""",
    "llama3_json": """{% if not tools is defined %}{% set tools = none %}{% endif %}
        {%- for m in messages %}{{ '<|start_header_id|>' if m.role == 'user' }}
        {%- for c in m.tool_calls or [] %}{{- '{"name": "' + c.function.name + '", ' }}
        {{- '"parameters": ' }}{{- c.function.arguments | tojson + '}' }}{% endfor %}{% endfor %}""",
    "mistral": """{%- if tools is not none %}{% endif %}{% for m in messages if m.tool_calls %}
        {{- '[TOOL_CALLS] [' }}{% for c in m.tool_calls %}{% set out = c.function | tojson %}
        {{- out[:-1] + ', "id": "' + c.id + '"}' }}{% endfor %}{{ ']' }}{% endfor %}""",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_what_a_template_writes_is_recognised_and_parsed(name):
    source = TEMPLATES[name]
    template = ChatTemplate(source, {})
    assert template.takes_tools
    assert find_parser(source) == name
    written = template.render(CONVERSATION).removeprefix(template.render(CONVERSATION[:1]))
    events = parse(TOOL_PARSERS[name](), list(written.strip()))
    assert events == call("f", json.dumps(WILD, ensure_ascii=False))


def test_templates_of_other_formats_are_not_recognised():
    assert find_parser("{{ messages }}") is None
    assert find_parser("<tool_call>\n<function={{ arguments }}>") is None  # Qwen3-Coder
    assert find_parser("<tool_call>{{ name }}<arg_key>{{ arguments }}") is None  # GLM 4.5
