"""An exported directory is an ordinary Hugging Face model with the same logits."""

from random import Random

import pytest
import torch
from safetensors.torch import load_file

from engine.training.corpus import CHAT, conversation
from engine.training.documents import ASSISTANT_END, IDS, SPECIAL_TOKENS
from engine.training.export import export
from engine.training.model import Model, ModelConfig
from tests.lazy import transformers


@pytest.fixture(scope="module")
def directory(tmp_path_factory, tokenizer):
    torch.manual_seed(0)
    model = Model(ModelConfig())
    for parameter in model.parameters():  # far from uniform logits, norms far from one
        parameter.data *= 1 + 2 * torch.rand_like(parameter)
    path = tmp_path_factory.mktemp("exported")
    export(model, tokenizer, path)
    return path


def test_transformers_computes_the_same_logits(directory):
    ours = Model(ModelConfig())
    ours.load_state_dict(load_file(directory / "model.safetensors"))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    tokens = torch.randint(0, 1536, (2, 200), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected, actual = theirs(tokens).logits, ours(tokens)
    assert expected.abs().max() > 1
    torch.testing.assert_close(actual, expected, atol=2e-4, rtol=1e-4)


def test_the_chat_template_writes_what_the_corpus_trains(directory):
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    for seed in range(60):
        document = conversation(Random(seed), tuple(CHAT)[seed % len(CHAT)])
        messages = []
        for turn in document.text.split("<|user_start|>")[1:]:
            user, _, rest = turn.partition("<|user_end|><|assistant_start|>")
            messages.append({"role": "user", "content": user})
            messages.append(
                {"role": "assistant", "content": rest.removesuffix("<|assistant_end|>")}
            )
        assert tokenizer.apply_chat_template(messages, tokenize=False) == document.text


def test_a_system_message_goes_in_front_of_the_first_user_message(directory):
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    shown = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert shown == "<|bos|><|user_start|>Be kind.\n\nHi<|user_end|><|assistant_start|>"


def test_special_tokens_and_the_end_of_generation(directory):
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == list(range(9))
    assert tokenizer.eos_token == "<|assistant_end|>"
    assert transformers.GenerationConfig.from_pretrained(directory).eos_token_id == [
        IDS[ASSISTANT_END],
        0,
    ]
    assert tokenizer("Once upon a time").input_ids[0] == tokenizer.bos_token_id == 0
