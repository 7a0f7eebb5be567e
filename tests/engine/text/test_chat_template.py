"""Chat templates: the same prompts as transformers, in a sandbox."""

import json
from pathlib import Path

import pytest

from engine.models.text.chat_template import ChatTemplate, ChatTemplateError
from engine.models.text.hf_tokenizer import HFTokenizer
from tests.engine.text.conftest import TEMPLATE
from tests.facts import raises_naming
from tests.lazy import transformers

CHAT = [
    {"role": "user", "content": "What is <b>17 & 25</b>? 😀"},
    {"role": "assistant", "content": "  42\n"},
    {"role": "user", "content": "Thanks!"},
]


@pytest.fixture(scope="module")
def judge(byte_level):
    return transformers.AutoTokenizer.from_pretrained(byte_level)


def render(source, messages=CHAT, **tokens):
    return ChatTemplate(source, tokens).render(messages)


# What the templates of the families use, in a few lines each, and other parts of the dialect.
FAMILIES = {
    "gemma 3": (
        "{{ bos_token }}{% if messages[0].role == 'system' %}"
        "{% set first = messages[0].content + '\\n' %}{% set loop_messages = messages[1:] %}"
        "{% else %}{% set first = '' %}"
        "{% set loop_messages = messages %}{% endif %}{% for message in loop_messages %}"
        "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}"
        "{{ '<start_of_turn>' + (message.role if message.role != 'assistant' else 'model') + '\\n' }}"
        "{{ first if loop.first }}{% if message.content is string %}{{ message.content | trim }}"
        "{% elif message.content is iterable %}{% for item in message.content %}"
        "{{ item['text'] | trim }}{% endfor %}{% endif %}<end_of_turn>\\n{% endfor %}"
        "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
    ),
    "smollm 3": (
        "{% set today = strftime_now('%Y') %}{% if enable_thinking is not defined %}"
        "{% set enable_thinking = true %}{% endif %}{%- macro turn(role, text) -%}"
        "<|im_start|>{{ role }}\\n{{ text }}<|im_end|>\\n{%- endmacro -%}"
        "{% if '/no_think' in messages[0].content %}{% set enable_thinking = false %}{% endif %}"
        "{% for m in messages %}{{ turn(m.role, m.content.replace('/no_think', '').rstrip()) }}"
        "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% endif %}"
        "{% endfor %}{{ today | length }}"
        "{% if add_generation_prompt and not enable_thinking %}<think></think>{% endif %}"
    ),
    "qwen 3": (
        "{% set ns = namespace(last=0, multi=true) %}{% for m in messages[::-1] %}"
        "{% set index = (messages | length - 1) - loop.index0 %}"
        "{% if ns.multi and m.role == 'user' and not (m.content.startswith('<tool_response>') and "
        "m.content.endswith('</tool_response>')) %}{% set ns.multi = false %}{% set ns.last = index %}"
        "{% endif %}{% endfor %}{% for m in messages %}{% set content = m.content %}"
        "{% if loop.index0 > ns.last and '</think>' in content %}"
        "{{ content.split('</think>')[-1].lstrip('\\n') }}{% else %}{{ content }}{% endif %}"
        "{% for call in m.tool_calls or [] %}{{ call.arguments | tojson }}{% endfor %}{% endfor %}"
        "{{ ns.last }}{% if tools %}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif %}"
    ),
    "byte level": TEMPLATE,
    **{
        source: source
        for source in (
            "{{ messages | tojson }}",
            "{{ messages | tojson(indent=2, sort_keys=true) }}",
            "{% for m in messages %}{% if loop.index == 2 %}{% continue %}{% endif %}{{ m.content }}"
            "{% if loop.last %}{% break %}{% endif %}{% endfor %}",
            "{% for m in messages %}\n  {% generation %}\n  {{ m.content }}\n  {% endgeneration %}\n"
            "{% endfor %}\n",
            "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}"
            "{{ ns.n }}{{ messages[0]['content'] | trim }}{{ messages[-1].reasoning_content }}",
            "{{ bos_token }}{{ tools is none }}{{ undefined_name is defined }}",
        )
    },
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_templates_render_as_in_transformers(judge, family, add_generation_prompt):
    tokens = {"bos_token": "<|bos|>", "eos_token": "<|assistant_end|>"}
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"ü": "<"}}}]
    for chat in (CHAT, [{"role": "user", "content": "/no_think hi"}], CHAT[:2]):
        expected = judge.apply_chat_template(
            chat,
            tools=tools,
            tokenize=False,
            chat_template=FAMILIES[family],
            add_generation_prompt=add_generation_prompt,
        )
        template = ChatTemplate(FAMILIES[family], tokens)
        assert template.render(chat, add_generation_prompt, tools=tools) == expected


def test_gemmas_roles_must_alternate_and_its_content_may_have_parts():
    parts = [{"role": "user", "content": [{"type": "text", "text": " hi "}]}]
    assert "user\nhi<end_of_turn>" in render(FAMILIES["gemma 3"], parts)
    with raises_naming(ChatTemplateError, "roles must alternate"):
        render(FAMILIES["gemma 3"], [CHAT[0], CHAT[0]])


def test_a_template_with_bos_gives_one_bos(byte_level):
    tokenizer = HFTokenizer(byte_level)
    ids = tokenizer.encode(tokenizer.chat_template.render(CHAT))
    assert ids.count(tokenizer.bos_id) == 1
    assert ids[0] == tokenizer.bos_id


def test_the_file_wins_over_the_settings(tmp_path):
    settings = {"chat_template": "settings"}
    assert ChatTemplate.from_directory(tmp_path, settings, {}).render(CHAT) == "settings"
    (tmp_path / "chat_template.jinja").write_text("file")
    assert ChatTemplate.from_directory(tmp_path, settings, {}).render(CHAT) == "file"


def test_of_several_named_templates_the_default_is_taken():
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}]
    template = ChatTemplate.from_directory(Path("nowhere"), {"chat_template": named}, {})
    assert template.render(CHAT) == "yes"


def test_a_model_without_a_template_says_so(sentencepiece):
    with pytest.raises(ChatTemplateError):
        HFTokenizer(sentencepiece).chat_template.render(CHAT)


def test_a_template_may_refuse(byte_level):
    with raises_naming(ChatTemplateError, "no tools here"):
        HFTokenizer(byte_level).chat_template.render([{"role": "tool", "content": "x"}])


def test_messages_a_template_does_not_expect_are_an_error(byte_level):
    template = HFTokenizer(byte_level).chat_template
    for messages in ([{"role": "user"}], [{"role": "user", "content": None}], [3], [{}]):
        with pytest.raises(ChatTemplateError):
            template.render(messages)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'a': 1}) }}",
        "{{ cycler.__init__.__globals__.os.getcwd() }}",
        "{% for i in range(999999999) %}{% endfor %}",
        "{% include 'secrets' %}",
        "{% for %}",
    ],
)
def test_the_sandbox_holds_and_a_broken_template_is_an_error(source):
    before = json.dumps(CHAT)
    with pytest.raises(ChatTemplateError):
        render(source)
    assert json.dumps(CHAT) == before


def test_variables_reach_the_template_but_not_in_place_of_the_conversation(judge):
    source = (
        "{{ bos_token }}{{ thinks }}{{ documents | tojson }}{{ messages[0].content }}{{ tools }}"
    )
    variables = {"thinks": False, "documents": [{"text": "a"}]}
    expected = judge.apply_chat_template(CHAT, tokenize=False, chat_template=source, **variables)
    template = ChatTemplate(source, {"bos_token": "<|bos|>"})
    assert template.render(CHAT, variables=variables) == expected
    stray = variables | {"messages": [{"content": "x"}], "tools": "x"}
    assert template.render(CHAT, variables=stray) == expected


def test_an_open_message_is_rendered_with_tools_and_variables():
    source = "{{ tools }}{{ mood }}{% for m in messages %}[{{ m.content }}]{% endfor %}"
    template = ChatTemplate(source, {})
    chat = [{"role": "assistant", "content": "Well"}]
    opened = template.render(chat, continue_final_message=True, tools=[1], variables={"mood": "!"})
    assert opened == "[1]![Well"
