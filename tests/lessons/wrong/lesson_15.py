"""Lesson 15: plausible wrong parts, the promises that they break, and facts of the messages."""

import numpy as np

from checks.broken import CommonPromise
from checks.lesson_15 import Promise


def walk(moves, state, token):
    for character in token:
        state = moves.get((state, character))
        if state is None:
            return None
    return state


def finish(allowed, state, accepting, eos):
    allowed[eos] = state in accepting
    if not any(allowed):
        raise ValueError("nothing fits")
    return allowed


def looks_at_the_first_character(fsm, state, vocab, eos):
    moves, accepting = fsm
    allowed = [token != "" and (state, token[0]) in moves for token in vocab]
    return finish(allowed, state, accepting, eos)


def looks_at_the_last_character(fsm, state, vocab, eos):
    moves, accepting = fsm
    allowed = [token != "" and (state, token[-1]) in moves for token in vocab]
    return finish(allowed, state, accepting, eos)


def looks_each_character_up_in_the_same_state(fsm, state, vocab, eos):
    moves, accepting = fsm
    allowed = [token != "" and all((state, one) in moves for one in token) for token in vocab]
    return finish(allowed, state, accepting, eos)


def wants_a_move_for_the_whole_token(fsm, state, vocab, eos):
    moves, accepting = fsm
    return finish([(state, token) in moves for token in vocab], state, accepting, eos)


def starts_at_the_beginning(fsm, state, vocab, eos):
    moves, accepting = fsm
    allowed = [token != "" and walk(moves, 0, token) is not None for token in vocab]
    return finish(allowed, state, accepting, eos)


def wants_the_token_to_finish_the_text(fsm, state, vocab, eos):
    moves, accepting = fsm
    allowed = [token != "" and walk(moves, state, token) in accepting for token in vocab]
    return finish(allowed, state, accepting, eos)


def goes_on_where_the_last_token_ended(fsm, state, vocab, eos):
    moves, accepting = fsm
    here, allowed = state, []
    for token in vocab:
        for character in token:
            here = moves.get((here, character), here if here is None else None)
        allowed.append(token != "" and here is not None)
    return finish(allowed, state, accepting, eos)


def forgets_the_state_after_a_good_token(fsm, state, vocab, eos):
    moves, accepting = fsm
    here, allowed = state, []
    for token in vocab:
        after = walk(moves, here, token)
        allowed.append(token != "" and after is not None)
        if allowed[-1]:
            here = after
    return finish(allowed, state, accepting, eos)


def takes_state_0_for_no_state(fsm, state, vocab, eos):
    moves, accepting = fsm
    allowed = []
    for token in vocab:
        here = state
        for character in token:
            here = moves.get((here, character))
            if not here:
                break
        allowed.append(bool(token and here))
    return finish(allowed, state, accepting, eos)


def allows_the_end_always(fsm, state, vocab, eos):
    moves, _ = fsm
    allowed = [token != "" and walk(moves, state, token) is not None for token in vocab]
    allowed[eos] = True
    return allowed


def never_allows_the_end(fsm, state, vocab, eos):
    moves, _ = fsm
    allowed = [token != "" and walk(moves, state, token) is not None for token in vocab]
    return finish(allowed, state, [], eos)


def treats_the_end_as_text(fsm, state, vocab, eos):
    moves, _ = fsm
    allowed = [token != "" and walk(moves, state, token) is not None for token in vocab]
    if not any(allowed):
        raise ValueError
    return allowed


def allows_the_end_only_if_nothing_follows(fsm, state, vocab, eos):
    moves, accepting = fsm
    allowed = [token != "" and walk(moves, state, token) is not None for token in vocab]
    goes_on = any(before == state for before, _ in moves)
    return finish(allowed, state, [] if goes_on else accepting, eos)


def takes_any_end_of_the_walk_for_the_end(fsm, state, vocab, eos):
    moves, accepting = fsm
    allowed = [token != "" and walk(moves, state, token) is not None for token in vocab]
    ends = any(walk(moves, state, token) in accepting for token in vocab)
    allowed[eos] = ends or state in accepting
    return finish(allowed, state, accepting if not ends else [state], eos)


def allows_empty_tokens(fsm, state, vocab, eos):
    moves, accepting = fsm
    allowed = [walk(moves, state, token) is not None for token in vocab]
    return finish(allowed, state, accepting, eos)


def returns_all_false_in_a_dead_state(fsm, state, vocab, eos):
    moves, accepting = fsm
    allowed = [token != "" and walk(moves, state, token) is not None for token in vocab]
    allowed[eos] = state in accepting
    return allowed


def allows_the_end_in_a_dead_state(fsm, state, vocab, eos):
    allowed = returns_all_false_in_a_dead_state(fsm, state, vocab, eos)
    if not any(allowed):
        allowed[eos] = True
    return allowed


def returns_the_tokens(fsm, state, vocab, eos):
    allowed = finish(returns_all_false_in_a_dead_state(fsm, state, vocab, eos), state, fsm[1], eos)
    return [token for token, one in zip(vocab, allowed, strict=True) if one]


def returns_the_ids(fsm, state, vocab, eos):
    allowed = finish(returns_all_false_in_a_dead_state(fsm, state, vocab, eos), state, fsm[1], eos)
    return {i: one for i, one in enumerate(allowed) if one}


def returns_the_states(fsm, state, vocab, eos):
    return [walk(fsm[0], state, token) for token in vocab]


def raises_a_key_error(fsm, state, vocab, eos):
    moves, accepting = fsm
    allowed = []
    for token in vocab:
        here = state
        for character in token:
            here = moves[here, character]
        allowed.append(True)
    return finish(allowed, state, accepting, eos)


def adds_moves(fsm, state, vocab, eos):
    moves, _ = fsm
    for token in vocab:
        for character in token:
            moves.setdefault((state, character), None)
    return returns_all_false_in_a_dead_state(fsm, state, vocab, eos)


def raises_where_the_text_may_only_end(fsm, state, vocab, eos):
    moves, accepting = fsm
    allowed = [token != "" and walk(moves, state, token) is not None for token in vocab]
    if not any(allowed):
        raise ValueError("no token fits")
    allowed[eos] = state in accepting
    return allowed


def leaves_the_end_out(fsm, state, vocab, eos):
    allowed = np.array(returns_all_false_in_a_dead_state(fsm, state, vocab, eos))
    return np.delete(allowed, eos)


WRONG = [
    (looks_at_the_first_character, Promise.ALL, ["You allowed", "can"]),
    (looks_at_the_last_character, Promise.WALKED, ["leads to state"]),
    (looks_each_character_up_in_the_same_state, Promise.WALKED, ["leads to state"]),
    (wants_a_move_for_the_whole_token, Promise.WALKED, ["leads to state"]),
    (starts_at_the_beginning, Promise.ALL, ["state 0"]),
    (wants_the_token_to_finish_the_text, Promise.WALKED, ["not accepting"]),
    (goes_on_where_the_last_token_ended, Promise.EACH, ["only other token"]),
    (forgets_the_state_after_a_good_token, Promise.EACH, ["only other token"]),
    (takes_state_0_for_no_state, Promise.WALKED, ["leads to state 0"]),
    (allows_the_end_always, Promise.NOT_THE_END, ["You allowed the end token"]),
    (never_allows_the_end, Promise.END, ["finished answer"]),
    (treats_the_end_as_text, Promise.END, ["finished answer"]),
    (allows_the_end_only_if_nothing_follows, Promise.END, ["finished answer"]),
    (takes_any_end_of_the_walk_for_the_end, Promise.NOT_THE_END, ["You allowed the end token"]),
    (allows_empty_tokens, Promise.EMPTY, ["''"]),
    (returns_all_false_in_a_dead_state, Promise.NO_TOKEN, ["False", "may not end"]),
    (allows_the_end_in_a_dead_state, Promise.NOT_THE_END, ["You allowed the end token"]),
    (returns_the_tokens, Promise.LIST, ["2 tokens"]),
    (returns_the_ids, Promise.LIST, ["True"]),
    (returns_the_states, Promise.LIST, ["2 tokens"]),
    (raises_a_key_error, CommonPromise.ANSWERS, ["KeyError"]),
    (adds_moves, CommonPromise.UNCHANGED, ["fsm"]),
    (raises_where_the_text_may_only_end, Promise.END, ["ValueError", "finished answer"]),
    (leaves_the_end_out, Promise.LIST, ["2 tokens"]),
]
