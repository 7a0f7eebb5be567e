"""The generation loop and the judges of the evaluation."""

import torch

from engine.training import evaluate, numbers
from engine.training.documents import SPECIAL_TOKENS, Turn
from engine.training.generate import generate
from engine.training.tokenizer import encode_text


def scripted(script, prompt_length):
    """A model that writes ``script``, whatever it reads; forced tokens count as its own."""

    def forward(tokens):
        logits = torch.zeros(*tokens.shape, 1536)
        for row, ids in enumerate(tokens.tolist()):
            for place in range(len(ids)):
                following = place + 1 - prompt_length
                if 0 <= following < len(script):
                    logits[row, place, script[following]] = 9.0
        return logits

    return forward


def test_the_calculators_output_is_forced(tokenizer):
    called = [5, *encode_text(tokenizer, "17+25"), 6]
    result = [7, *encode_text(tokenizer, "42"), 8]
    after = encode_text(tokenizer, "17 + 25 = 42.")
    # In the place of the output the script holds other tokens: forced ones must replace them.
    script = [*called, *[20] * len(result), *after, 4]
    (row,) = generate(scripted(script, 2), tokenizer, [[0, 3]])
    assert row == [*called, *result, *after]


def test_what_the_calculator_refuses_forces_nothing(tokenizer):
    script = [5, *encode_text(tokenizer, "2**9"), 6, 30, 4]
    (row,) = generate(scripted(script, 2), tokenizer, [[0, 3]])
    assert row == script[:-1]


def test_rows_of_different_length_do_not_disturb_each_other(tokenizer):
    torch.manual_seed(0)
    table = torch.randn(1536, 1536)
    prompts = [[0, 3], [0, 9, 10, 11, 3], [0, 1, 2, 3, 4, 5, 90]]
    together = generate(lambda t: table[t], tokenizer, prompts, max_tokens=9)
    alone = [generate(lambda t: table[t], tokenizer, [p], max_tokens=9)[0] for p in prompts]
    assert together == alone


def test_sampling_repeats_with_its_seed(tokenizer):
    options = {"max_tokens": 12, "temperature": 1.0}
    rows = [
        generate(lambda t: torch.zeros(*t.shape, 1536), tokenizer, [[0]], seed=seed, **options)
        for seed in (1, 1, 2)
    ]
    assert rows[0] == rows[1] != rows[2]


def test_evaluation_asks_only_held_out_pairs():
    for turn in [*evaluate.held_out_sums(200), *evaluate.unseen_sums(100)]:
        assert numbers.held_out(turn.expression)
        assert turn.question
    assert evaluate.held_out_sums(20) == evaluate.held_out_sums(20)


def test_judges():
    turn = Turn("", "17 + 25 = 42.", "17+25")
    call = "".join(SPECIAL_TOKENS[5:7])
    assert evaluate.sum_is_right(turn, call + "25 + 17 = 42.")
    assert not evaluate.sum_is_right(turn, call + "17 + 25 = 43.")
    assert not evaluate.sum_is_right(turn, "17 + 25 = 42.")
    turn = Turn("", numbers.count_answer("hello", "l"))
    assert evaluate.count_is_right(turn, 'The letter l occurs 2 times in "helo".')
    assert not evaluate.count_is_right(turn, 'The letter l occurs 3 times in "hello".')
    assert not evaluate.count_is_right(turn, "I do not know.")
    turn = Turn("", "It is this. And more.")
    assert evaluate.concept_is_right(turn, "It is this. Other words.")
    assert not evaluate.concept_is_right(turn, "It is that. And more.")


def test_a_third_name_or_a_name_met_once_is_a_slip():
    story = "Once there was a fox named Pip. Ada met Pip. Ada said: Hello!"
    assert evaluate.names_are_consistent(story)
    assert evaluate.names_are_consistent(story, "Pip")
    assert not evaluate.names_are_consistent(story, "Ada")
    assert not evaluate.names_are_consistent(story + " Tom smiled. Tom!")
    assert not evaluate.names_are_consistent(story.replace("Ada said", "Eva said"))
    assert not evaluate.names_are_consistent("A fox went home.")
