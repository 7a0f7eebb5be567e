"""Chat templates: the same prompts as transformers, in a sandbox."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import transformers

from engine.text.chat_template import ChatTemplate, ChatTemplateError
from engine.text.tokenizer import HFTokenizer
from tests.facts import raises_naming

CHAT = [
    {"role": "user", "content": "What is <b>17 & 25</b>? 😀"},
    {"role": "assistant", "content": "  42\n"},
    {"role": "user", "content": "Thanks!"},
]


def render(source, messages=CHAT, **tokens):
    return ChatTemplate(source, tokens).render(messages)


@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_prompts_are_those_of_transformers(byte_level, add_generation_prompt):
    judge = transformers.AutoTokenizer.from_pretrained(byte_level)
    expected = judge.apply_chat_template(
        CHAT, tokenize=False, add_generation_prompt=add_generation_prompt
    )
    ours = HFTokenizer(byte_level).chat_template.render(CHAT, add_generation_prompt)
    assert ours == expected
    assert ours.endswith("<|assistant_start|>") == add_generation_prompt


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages | tojson }}",
        "{{ messages | tojson(indent=2, sort_keys=true) }}",
        "{% for m in messages %}{% if loop.index == 2 %}{% continue %}{% endif %}{{ m.content }}"
        "{% if loop.last %}{% break %}{% endif %}{% endfor %}",
        "{% for m in messages %}\n  {% generation %}\n  {{ m.content }}\n  {% endgeneration %}\n"
        "{% endfor %}\n",
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}"
        "{{ ns.n }}{{ messages[0]['content'] | trim }}{{ messages[-1].reasoning_content }}",
        "{{ bos_token }}{{ tools is none }}{{ undefined_name is defined }}",
    ],
)
def test_the_dialect_is_that_of_transformers(byte_level, source):
    judge = transformers.AutoTokenizer.from_pretrained(byte_level)
    expected = judge.apply_chat_template(
        CHAT, tokenize=False, chat_template=source, add_generation_prompt=True
    )
    assert render(source, bos_token="<|bos|>") == expected


def test_today_is_known():
    assert render("{{ strftime_now('%Y') }}").startswith("20")


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


def test_a_broken_template_is_named_when_it_is_needed():
    template = ChatTemplate("{% for %}", {})
    with raises_naming(ChatTemplateError, "Jinja"):
        template.render(CHAT)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'a': 1}) }}",
        "{{ cycler.__init__.__globals__.os.getcwd() }}",
        "{% for i in range(999999999) %}{% endfor %}",
        "{% include 'secrets' %}",
    ],
)
def test_the_sandbox_holds(source):
    before = json.dumps(CHAT)
    with pytest.raises(ChatTemplateError):
        render(source)
    assert json.dumps(CHAT) == before


def test_nothing_reaches_torch():
    """The torch-free core imports this package."""
    code = (
        "import sys, engine.text.tokenizer, engine.text.byte_tokenizer; "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
