"""Evaluation: measure what the bundled model can do with questions it never saw.

``python -m engine.training.evaluate DIR`` answers fixed questions greedily, tells stories at
temperature 0.8, and writes the counts to ``DIR/evaluation.json`` and the model card
``DIR/README.md``. Held-out operand pairs and sentences were kept from training; the phrasings in
``data/unseen.toml`` differ from everything in the corpus, even in structure.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor
from tqdm import tqdm

from engine.training import documents, numbers, serving, stories, words
from engine.training.card import write_card
from engine.training.data import load
from engine.training.documents import SPECIAL_TOKENS, Turn
from engine.training.export import read_config
from engine.training.generate import generate
from engine.training.model import Model
from engine.training.tokenizer import encode_text

SEED = 1
ROWS = 40  # prompts per batch
STORY_TEMPERATURE = 0.8
UNSEEN = load("unseen")


class Writer:
    """A trained model and its tokenizer, to continue text with."""

    def __init__(self, forward: Callable[[Tensor], Tensor], tokenizer: Tokenizer) -> None:
        self.forward = forward
        self.tokenizer = tokenizer

    @classmethod
    def load(cls, directory: Path) -> Writer:
        """Read a directory written by ``engine.training.export``."""
        model = Model(read_config(directory))
        model.load_state_dict(load_file(directory / "model.safetensors"))
        model.eval()
        return cls(model, Tokenizer.from_file(str(directory / "tokenizer.json")))

    def answers(self, questions: Sequence[str], **options: Any) -> list[str]:
        """Answer each question in a chat of its own; special tokens are shown."""
        prompts = [self.chat_prompt(question) for question in questions]
        return self.continuations(prompts, **options)

    def chat_prompt(self, question: str) -> list[int]:
        """Return the token ids of a chat up to the beginning of the model's answer."""
        before = [documents.BOS, documents.USER_START]
        after = [documents.USER_END, documents.ASSISTANT_START]
        return [
            *map(SPECIAL_TOKENS.index, before),
            *encode_text(self.tokenizer, question),
            *map(SPECIAL_TOKENS.index, after),
        ]

    def continuations(self, prompts: Sequence[list[int]], **options: Any) -> list[str]:
        """Continue each prompt, ``ROWS`` prompts at a time; return the new texts."""
        texts: list[str] = []
        for start in range(0, len(prompts), ROWS):
            rows = generate(self.forward, self.tokenizer, prompts[start : start + ROWS], **options)
            texts += self.tokenizer.decode_batch(rows, skip_special_tokens=False)
        return texts


def measure(writer: Writer) -> dict[str, dict[str, Any]]:
    """Run all measurements; each has counts ``correct`` and ``total``, and ``missed`` answers."""
    measurements: list[tuple[str, list[Turn], Callable[[Turn, str], bool]]] = [
        ("sums, held-out operands and sentences", held_out_sums(200), sum_is_right),
        ("letter counts, held-out sentences", held_out_letters(100), count_is_right),
        ("sums, phrasings never seen", unseen_sums(100), sum_is_right),
        ("concepts, held-out sentences", held_out_concepts(), concept_is_right),
        ("concepts, phrasings never seen", unseen_concepts(), concept_is_right),
    ]
    results = {}
    for name, turns, is_right in tqdm(measurements, desc="evaluating"):
        results[name] = _score(writer, turns, is_right)
    results["names consistent in sampled stories"] = _score_stories(writer)
    return results


def _score(
    writer: Writer, turns: list[Turn], is_right: Callable[[Turn, str], bool]
) -> dict[str, Any]:
    answers = writer.answers([turn.question for turn in turns])
    missed = [
        {"question": turn.question, "answer": answer}
        for turn, answer in zip(turns, answers, strict=True)
        if not is_right(turn, answer)
    ]
    return {"correct": len(turns) - len(missed), "total": len(turns), "missed": missed}


def held_out_pair(rng: Random, operation: str) -> tuple[str, str, str]:
    """Draw two operands that never appear together in training, and their expression."""
    while True:
        a, b = numbers.operands(rng, operation)
        expression = f"{a}{numbers.OPERATIONS[operation]}{b}"
        if numbers.held_out(expression) and numbers.tidy(expression):
            return a, b, expression


def held_out_sums(count: int) -> list[Turn]:
    """Make sums whose operands and sentences were both kept from training."""
    rng = Random(SEED)
    turns = []
    for index in range(count):
        operation = tuple(numbers.OPERATIONS)[index % 4]
        a, b, expression = held_out_pair(rng, operation)
        question = numbers.ask(rng, operation, a, b, "held_out")
        turns.append(Turn(question, numbers.answer(expression), expression))
    return turns


def unseen_sums(count: int) -> list[Turn]:
    """Make sums in phrasings unlike any in the corpus."""
    rng = Random(SEED + 1)
    phrasings = [(group["expression"], q) for group in UNSEEN["sums"] for q in group["questions"]]
    names = {sign: name for name, sign in numbers.OPERATIONS.items()}
    turns = []
    for index in range(count):
        template, question = phrasings[index % len(phrasings)]
        a, b, expression = held_out_pair(rng, names[template[3]])
        turns.append(Turn(question.format(a=a, b=b), numbers.answer(expression), expression))
    return turns


def sum_is_right(turn: Turn, answer: str) -> bool:
    """Return whether the answer calls the calculator and ends with the right result."""
    expected = turn.answer.partition(" = ")[2]
    return documents.PYTHON_START in answer and answer.rpartition(" = ")[2] == expected


def held_out_letters(count: int) -> list[Turn]:
    """Make letter counts in sentences kept from training; most words are made up."""
    rng = Random(SEED)
    turns = []
    for _ in range(count):
        word = words.counted_word(rng)
        letter = rng.choice(word if rng.random() < 0.85 else "abcdefghijklmnopqrstuvwxyz")
        turns.append(numbers.count_turn(rng, word, letter, "held_out"))
    return turns


def count_is_right(turn: Turn, answer: str) -> bool:
    """Return whether the answer states the right count."""
    found = re.search(r"occurs (\d+) times? in ", answer)
    expected = re.search(r"occurs (\d+) ", turn.answer)
    return bool(found and expected and found[1] == expected[1])


def held_out_concepts() -> list[Turn]:
    """Ask for every concept once, in a sentence kept from training."""
    return _concepts(serving.WHAT_HELD_OUT, each=1)


def unseen_concepts() -> list[Turn]:
    """Ask for every concept three times, in phrasings unlike any in the corpus."""
    return _concepts(UNSEEN["concepts"], each=3)


def _concepts(templates: Sequence[str], each: int) -> list[Turn]:
    turns = []
    for index, concept in enumerate(concept for concept in serving.CONCEPTS for _ in range(each)):
        question = templates[index % len(templates)].format(c=concept["names"][0])
        turns.append(Turn(question[0].upper() + question[1:], concept["what"]))
    return turns


def concept_is_right(turn: Turn, answer: str) -> bool:
    """Return whether the answer begins with the first sentence of the concept's definition."""
    return answer.startswith(serving.first_sentence(turn.answer))


def _score_stories(writer: Writer) -> dict[str, Any]:
    """Score forty stories: half continue "Once upon a time", half answer a request in a chat."""
    rng = Random(SEED)
    opening = [0, *encode_text(writer.tokenizer, "Once upon a time")]
    prompts, heroes = [opening] * 20, [""] * 20
    for index in range(20):
        hero = words.character(rng)
        request = rng.choice(stories.REQUESTS["any" if index % 2 else "name"])
        article = words.with_article(hero.kind)
        prompts.append(writer.chat_prompt(request.format(k=hero.kind, ak=article, n=hero.name)))
        heroes.append("" if index % 2 else hero.name)
    texts = writer.continuations(prompts, max_tokens=300, temperature=STORY_TEMPERATURE, seed=SEED)
    missed = [
        {"question": name or "a story", "answer": text}
        for text, name in zip(texts, heroes, strict=True)
        if not names_are_consistent(text, name)
    ]
    return {"correct": len(texts) - len(missed), "total": len(texts), "missed": missed}


def names_are_consistent(story: str, hero: str = "") -> bool:
    """Return whether a story keeps to its two characters.

    It must have one or two names, each at least twice, and a requested hero must come first. A
    mistake shows as a third name.
    """
    names = [word for word in re.findall(r"[A-Z][a-z]+", story) if word in _NAMES]
    return (
        0 < len(set(names)) <= 2
        and all(names.count(name) > 1 for name in names)
        and (not hero or names[0] == hero)
    )


_NAMES = {*words.GIRLS, *words.BOYS}


def evaluate(directory: Path) -> None:
    """Measure the model in ``directory``, print the counts, write evaluation.json and README.md."""
    results = measure(Writer.load(directory))
    (directory / "evaluation.json").write_text(json.dumps(results, indent=2) + "\n")
    write_card(directory)
    for name, result in results.items():
        print(f"{name:42} {result['correct']:4} of {result['total']}")


if __name__ == "__main__":
    evaluate(Path(sys.argv[1]))
