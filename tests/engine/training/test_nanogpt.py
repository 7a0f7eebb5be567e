"""The model trained while you wait: it learns words, and others read it as we do."""

import json
import re
from random import Random

import pytest
import torch

from engine import Engine, SamplingParams
from engine.core.engine import EngineConfig
from engine.models.text.hf_tokenizer import HFTokenizer
from engine.models.weights.checkpoint import Checkpoint
from engine.training import nanogpt
from engine.training.nanogpt import STORIES, NanoConfig, NanoGPT, train_nanogpt
from engine.training.stories import plain_story
from tests.lazy import transformers

PROMPT = "Once upon a time there"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """With half the default's steps, to save time; the default knows some 80% of its words."""
    directory = tmp_path_factory.mktemp("trained") / "nanogpt"
    return train_nanogpt(directory, steps=200, progress=False)


@pytest.fixture(scope="module")
def tokenizer(trained):
    return HFTokenizer(trained)


@pytest.fixture
def few_stories(monkeypatch):
    """For what does not depend on how well it learns."""
    monkeypatch.setattr(nanogpt, "STORIES", 50)


def words(text):
    return re.findall(r"[A-Za-z]+", text)


def known_share(directory):
    """Of the words that a model writes, the share that the stories have."""
    rng = Random(0)
    vocabulary = {word for _ in range(STORIES) for word in words(plain_story(rng))}
    engine = Engine.load(directory)
    params = [SamplingParams(max_tokens=130, temperature=0.7, seed=seed) for seed in range(8)]
    written = []
    for completion in engine.complete([PROMPT] * len(params), params, progress=False):
        written += words(completion.text)[:-1]  # the last one may be cut off
    assert len(written) > 50
    return sum(word in vocabulary for word in written) / len(written)


def test_what_it_writes_is_made_of_the_stories_words(trained, tmp_path):
    barely = train_nanogpt(tmp_path, steps=1, progress=False)
    assert known_share(trained) > 0.4
    assert known_share(barely) < 0.1


def test_greedy_tokens_and_ids_equal_transformers(trained):
    prompts = [PROMPT, "Tim and the fox", "What? 17 + 25\n", "<|endoftext|>One day"]
    engine = Engine.load(trained, EngineConfig(token_budget=16, block_size=4))
    outputs = engine.complete(
        prompts, SamplingParams(max_tokens=60, temperature=0, ignore_eos=True), progress=False
    )
    theirs = transformers.AutoTokenizer.from_pretrained(trained)
    model = transformers.AutoModelForCausalLM.from_pretrained(trained, dtype=torch.float32)
    model.generation_config.eos_token_id = None
    for prompt, output in zip(prompts, outputs, strict=True):
        ids = theirs(prompt, return_tensors="pt")
        assert ids["input_ids"][0].tolist() == engine.tokenizer.encode(prompt)
        row = model.generate(**ids, max_new_tokens=60, do_sample=False)[0].tolist()
        assert row == ids["input_ids"][0].tolist() + output.token_ids
        assert theirs.decode(row) == engine.tokenizer.decode(row)


def test_the_training_model_is_the_one_that_is_served(trained):
    """Logits of the network that was trained, with the weights on disk, against transformers'."""
    config = json.loads((trained / "config.json").read_text())
    model = NanoGPT(NanoConfig(config["vocab_size"]))
    weights = Checkpoint(trained, torch.float32)
    model.load_state_dict(
        {
            name: weights.load(f"transformer.{name}", *tensor.shape)
            for name, tensor in model.state_dict().items()
        }
    )
    weights.check_all_loaded()
    tokens = torch.arange(160).reshape(2, 80) % config["vocab_size"]
    theirs = transformers.AutoModelForCausalLM.from_pretrained(trained, dtype=torch.float32)
    with torch.no_grad():
        assert torch.allclose(model(tokens), theirs(tokens).logits, atol=1e-4)


def test_a_window_hides_all_but_the_last_characters():
    """Behind the reach of two layers, another first character changes nothing."""
    torch.manual_seed(0)
    model = NanoGPT(NanoConfig(vocab_size=7))
    tokens = torch.randint(1, 7, (1, 20))
    other = tokens.clone()
    other[0, 0] = 0
    with torch.no_grad():
        near, whole = (model(tokens, w) == model(other, w) for w in (4, None))
    reach = 2 * (4 - 1)
    assert near[0, reach + 1 :].all()
    assert not near[0, reach].all()
    assert not whole[0, -1].all()


def test_every_character_of_the_stories_is_a_token_and_comes_back(tokenizer):
    rng = Random("other stories")
    for _ in range(200):
        text = plain_story(rng)
        ids = tokenizer.encode(text)
        assert len(ids) == len(text)
        assert tokenizer.decode(ids) == text
        assert "".join(tokenizer.pieces(ids)) == text


@pytest.mark.parametrize("text", ["é", "🙂", "7", "\n", "日本"])
def test_an_unknown_character_is_read_as_unk_each_by_itself(tokenizer, text):
    ids = tokenizer.encode(f"a{text}b")
    assert tokenizer.pieces(ids) == ["a", *["<unk>"] * len(text), "b"]


def test_the_same_seed_trains_the_same_model_and_leaves_other_randomness_alone(
    tmp_path, few_stories
):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    files = [
        train_nanogpt(tmp_path / name, steps=3, seed=seed, progress=False) / "model.safetensors"
        for name, seed in (("one", 1), ("again", 1), ("other", 2))
    ]
    one, again, other = (file.read_bytes() for file in files)
    assert one == again
    assert one != other
    assert torch.equal(torch.rand(3), expected)
