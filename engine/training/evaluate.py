"""Evaluation: measure what the bundled model can do with questions it never saw.

``python -m engine.training.evaluate DIR`` answers fixed questions greedily, tells stories at
temperature 0.8, and writes the counts to ``DIR/evaluation.json`` and the model card
``DIR/README.md``. The engine serves the model as for any other user, including its calculator.
Held-out operand pairs and sentences were kept from training; the phrasings in ``data/unseen.toml``
differ from everything in the corpus, even in structure.
"""

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from tqdm import tqdm

from engine import Engine, EngineConfig, SamplingParams
from engine.training import evaluate_tools, numbers, serving, stories, words
from engine.training.documents import PYTHON_START, Turn

SEED = 1
ENGINE = EngineConfig(token_budget=1024, max_batch_size=40, max_kv_tokens=16384)
STORY_TEMPERATURE = 0.8
UNSEEN = words.load("unseen")
SHOWN = 5  # wrong answers that evaluation.json keeps of each measurement
_GREEDY = SamplingParams(max_tokens=120, temperature=0)


def chat_prompt(engine: Engine, question: str) -> str:
    """Return a chat up to the beginning of the model's answer."""
    prompt: str = engine.tokenizer.chat_template.render([{"role": "user", "content": question}])
    return prompt


def answers(engine: Engine, questions: Sequence[str]) -> list[str]:
    """Answer each question greedily in a chat of its own; calculator calls are shown."""
    prompts = [chat_prompt(engine, question) for question in questions]
    return [one.text for one in engine.complete(prompts, _GREEDY, progress=False)]


def measure(engine: Engine) -> dict[str, dict[str, Any]]:
    """Run all measurements; each has counts ``correct`` and ``total``, and ``missed`` answers."""
    measurements: list[tuple[str, list[Turn], Callable[[Turn, str], bool]]] = [
        ("sums, held-out operands and sentences", held_out_sums(200), sum_is_right),
        ("letter counts, held-out sentences", held_out_letters(100), count_is_right),
        ("sums, phrasings never seen", unseen_sums(100), sum_is_right),
        ("concepts, held-out sentences", concepts(serving.WHAT_HELD_OUT, 1), concept_is_right),
        ("concepts, phrasings never seen", concepts(UNSEEN["concepts"], 3), concept_is_right),
    ]
    results = {}
    for name, turns, is_right in tqdm(measurements, desc="evaluating"):
        questions = [turn.question for turn in turns]
        results[name] = _score(turns, answers(engine, questions), is_right)
    results["names consistent in sampled stories"] = _score_stories(engine)
    turns = held_out_sums(40)
    raw = [
        one.text for one in engine.complete([t.question for t in turns], _GREEDY, progress=False)
    ]
    results["sums without a chat template"] = _score(turns, raw, sum_is_right)
    for name, cases in tqdm(evaluate_tools.cases(100).items(), desc="evaluating tools"):
        results[name] = evaluate_tools.measure(engine, cases)
    for result in results.values():
        del result["missed"][SHOWN:]
    return results


def _score(
    turns: list[Turn], texts: list[str], is_right: Callable[[Turn, str], bool]
) -> dict[str, Any]:
    missed = [
        {"question": turn.question, "answer": text}
        for turn, text in zip(turns, texts, strict=True)
        if not is_right(turn, text)
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
        turns.append(numbers.solved(question, expression))
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
        turns.append(numbers.solved(question.format(a=a, b=b), expression))
    return turns


def sum_is_right(turn: Turn, answer: str) -> bool:
    """Return whether the answer calls the calculator and ends with the right result."""
    expected = turn.answer.partition(" = ")[2]
    return PYTHON_START in answer and answer.rpartition(" = ")[2] == expected


def held_out_letters(count: int) -> list[Turn]:
    """Make letter counts in sentences kept from training; most words are made up."""
    rng = Random(SEED)
    return [
        numbers.count_turn(rng, *numbers.word_and_letter(rng), "held_out") for _ in range(count)
    ]


def count_is_right(turn: Turn, answer: str) -> bool:
    """Return whether the answer states the right count."""
    found = re.search(r"occurs (\d+) times? in ", answer)
    expected = re.search(r"occurs (\d+) ", turn.answer)
    return bool(found and expected and found[1] == expected[1])


def concepts(templates: Sequence[str], each: int) -> list[Turn]:
    """Ask ``each`` times for every concept, with the templates in turn."""
    turns = []
    for index, concept in enumerate(concept for concept in serving.CONCEPTS for _ in range(each)):
        question = templates[index % len(templates)].format(c=concept["names"][0])
        turns.append(Turn(question[0].upper() + question[1:], concept["what"]))
    return turns


def concept_is_right(turn: Turn, answer: str) -> bool:
    """Return whether the answer begins with the first sentence of the concept's definition."""
    return answer.startswith(serving.first_sentence(turn.answer))


def _score_stories(engine: Engine) -> dict[str, Any]:
    """Score forty stories: half continue "Once upon a time", half answer a request in a chat."""
    rng = Random(SEED)
    prompts = ["Once upon a time"] * 20
    heroes = [""] * 20
    for index in range(20):
        hero = words.character(rng)
        request = rng.choice(stories.REQUESTS["any" if index % 2 else "name"])
        article = words.with_article(hero.kind)
        request = request.format(k=hero.kind, ak=article, n=hero.name)
        prompts.append(chat_prompt(engine, request))
        heroes.append("" if index % 2 else hero.name)
    params = [
        SamplingParams(max_tokens=300, temperature=STORY_TEMPERATURE, seed=seed)
        for seed in range(len(prompts))
    ]
    texts = [one.text for one in engine.complete(prompts, params, progress=False)]
    requests = [Turn(hero or "a story", hero) for hero in heroes]
    return _score(requests, texts, lambda turn, text: names_are_consistent(text, turn.answer))


def names_are_consistent(story: str, hero: str = "") -> bool:
    """Return whether a story keeps to its two characters.

    It must have one or two names, each at least twice, and a requested hero must come first. A
    mistake shows as a third name.
    """
    names = [word for word in re.findall(r"[A-Z][a-z]+", story) if word in words.NAMES]
    return (
        0 < len(set(names)) <= 2
        and all(names.count(name) > 1 for name in names)
        and (not hero or names[0] == hero)
    )


def write_card(directory: Path) -> None:
    """Write ``README.md`` from ``training.json`` and ``evaluation.json`` in ``directory``."""
    training = json.loads((directory / "training.json").read_text())
    results = json.loads((directory / "evaluation.json").read_text())
    rows = (f"| {name} | {r['correct']} of {r['total']} |" for name, r in results.items())
    template = (words.DATA / "card.md").read_text()
    card = template.format(
        concepts=len(serving.CONCEPTS),
        parameters=f"{training['parameters'] / 1e6:.2f}",
        seed=training["seed"],
        tokens=f"{training['tokens'] / 1e6:.1f} million",
        minutes=training["minutes"],
        device=training["device"],
        schedule=training["schedule"],
        megabytes=f"{(directory / 'model.safetensors').stat().st_size / 1e6:.1f}",
        rows="\n".join(rows),
    )
    (directory / "README.md").write_text(card)


def evaluate(directory: Path) -> None:
    """Measure the model in ``directory``, print the counts, write evaluation.json and README.md."""
    results = measure(Engine.load(directory, ENGINE))
    (directory / "evaluation.json").write_text(json.dumps(results, indent=2) + "\n")
    write_card(directory)
    for name, result in results.items():
        print(f"{name:42} {result['correct']:4} of {result['total']}")


if __name__ == "__main__":
    evaluate(Path(sys.argv[1]))
