"""The questions and the judges of the evaluation."""

from engine.training import evaluate, numbers
from engine.training.documents import SPECIAL_TOKENS, Turn


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
    turn = numbers.counted("", "hello", "l")
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
