"""How long a large vocabulary holds the GIL, and with it every stream of a server.

    python -m benchmarks.vocabulary [TOKENS]

Makes a tokenizer of 151,936 tokens (Qwen's size; Gemma 3 has 262,144) and a model with a tiny body,
then does what a server does with them. A watcher thread wakes every millisecond; its longest wait is
the longest time that another thread could not run. `cpu` is the process's CPU time, which varies less
on a busy machine.
"""

import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice, product
from pathlib import Path

import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers

from engine import Engine, EngineConfig, SamplingParams
from engine.core.sampling_params import StructuredOutput
from engine.extensions.grammars.grammar import GrammarCompiler
from engine.models import loader
from engine.models.text.hf_tokenizer import HFTokenizer


@contextmanager
def watched(name: str) -> Iterator[None]:
    """Print how long the block took, and how long it let no other thread run."""
    done, longest = threading.Event(), 0.0

    def watch() -> None:
        nonlocal longest
        last = time.perf_counter()
        while not done.is_set():
            time.sleep(0.001)
            last, before = time.perf_counter(), last
            longest = max(longest, last - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    start, cpu = time.perf_counter(), time.process_time()
    yield
    took, cpu = time.perf_counter() - start, time.process_time() - cpu
    done.set()
    watcher.join()
    print(f"{name:44} {took * 1e3:7.0f} ms, cpu {cpu * 1e3:6.0f}, longest gap {longest * 1e3:6.0f}")


def make(directory: Path, size: int) -> None:
    """Write a byte-level tokenizer of `size` tokens, and a Llama model of 2 layers for it."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: i for i, letter in enumerate(alphabet)}
    merges = []
    letters = "Ġetaoinshrdlucmfwypvbgk"
    words = (word for length in (2, 3, 4) for word in product(letters, repeat=length))
    for word in islice(words, size - 259):
        merges.append(("".join(word[:-1]), word[-1]))
        vocabulary["".join(word)] = len(vocabulary)
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {"eos_token": "<|im_end|>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=size,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        tie_word_embeddings=True,
        max_position_embeddings=4096,
    )
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).save_pretrained(directory)


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 151_936
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        make(directory, size)
        print(f"{size:,} tokens\n\nbefore a server is ready")
        with watched("tokenizer"):
            tokenizer = HFTokenizer(directory)
        with watched("structured output: vocabulary"):
            GrammarCompiler(tokenizer).prepare()
        with watched("model and tokenizer"):
            runner, tokenizer = loader.load(directory)
    config = EngineConfig(max_batch_size=32, max_kv_tokens=32 * 64, token_budget=512)
    engine = Engine(runner, config, tokenizer=tokenizer)
    engine.prepare()
    print("\nwhile it serves")
    text = "the tea and the cat " * 10_000
    with watched(f"encode {len(text):,} characters"):
        ids = tokenizer.encode(text)
    with watched(f"decode {len(ids):,} tokens"):
        tokenizer.decode(ids)
    with watched("compile a grammar, and the first mask"):
        GrammarCompiler(tokenizer).constraint(StructuredOutput("regex", "[a-z ]+[.]"))
    everything = {i: 0.5 for i in range(300)}
    for label, fields in {
        "greedy": {},
        "top_p, top_k": {"temperature": 1.0, "top_p": 0.9, "top_k": 50},
        "top_p, min_p": {"temperature": 1.0, "top_p": 0.9, "min_p": 0.01},
        "20 logprobs": {"logprobs": 20},
        "logit_bias of 300": {"logit_bias": everything},
        "all token ids allowed": {"allowed_token_ids": tuple(range(size))},
        "penalties": {"repetition_penalty": 1.1, "frequency_penalty": 0.1},
        "bad words": {"bad_words": ("tea", "cat")},
        "structured": {"structured": StructuredOutput("regex", "[a-z ]+[.]")},
    }.items():
        params = SamplingParams(max_tokens=8, ignore_eos=True, **fields)
        with watched(f"32 requests, 8 tokens: {label}"):
            engine.complete(["the tea"] * 32, [params] * 32, progress=False)


if __name__ == "__main__":
    main()
