"""Lesson 10: plausible wrong parts, the promises that they break, and facts of the messages."""

import random

from checks.broken import CommonPromise
from checks.lesson_10 import Promise
from solutions.lesson_10 import accept as solution

CHANCE = random.Random(7)


def draws_from_the_model_again(p, q, drafts, uniforms, pick):
    kept = []
    for model, drafter, draft, number in zip(p, q, drafts, uniforms, strict=False):
        if number >= model[draft] / drafter[draft]:
            return [*kept, pick(model)]
        kept.append(draft)
    return [*kept, pick(p[-1])]


def keeps_what_the_model_likes_at_least_as_much(p, q, drafts, uniforms, pick):
    kept = []
    for model, drafter, draft in zip(p, q, drafts, strict=False):
        if model[draft] < drafter[draft]:
            left = [max(0.0, m - d) for m, d in zip(model, drafter, strict=True)]
            return [*kept, pick(left)]
        kept.append(draft)
    return [*kept, pick(p[-1])]


def upside_down(p, q, drafts, uniforms, pick):
    kept = []
    for model, drafter, draft, number in zip(p, q, drafts, uniforms, strict=False):
        if number * model[draft] >= drafter[draft]:
            left = [max(0.0, m - d) for m, d in zip(model, drafter, strict=True)]
            return [*kept, pick(left)]
        kept.append(draft)
    return [*kept, pick(p[-1])]


def goes_on_after_a_refusal(p, q, drafts, uniforms, pick):
    said = []
    for model, drafter, draft, number in zip(p, q, drafts, uniforms, strict=False):
        if number >= model[draft] / drafter[draft]:
            draft = pick([max(0.0, m - d) for m, d in zip(model, drafter, strict=True)])
        said.append(draft)
    return [*said, pick(p[-1])]


def forgets_the_bonus(p, q, drafts, uniforms, pick):
    answer = solution(p, q, drafts, uniforms, pick)
    return answer[: max(1, len(drafts))] if drafts else answer


def draws_the_bonus_from_the_row_before(p, q, drafts, uniforms, pick):
    return solution([*p[: len(drafts)], p[len(drafts) - 1]], q, drafts, uniforms, pick)


def keeps_a_likely_draft(p, q, drafts, uniforms, pick):
    """Compares with the model's probability alone: right for a drafter that is always sure."""
    kept = []
    for model, drafter, draft, number in zip(p, q, drafts, uniforms, strict=False):
        if number >= model[draft]:
            left = [max(0.0, m - d) for m, d in zip(model, drafter, strict=True)]
            return [*kept, pick(left if sum(left) else model)]
        kept.append(draft)
    return [*kept, pick(p[-1])]


def negative_weights(p, q, drafts, uniforms, pick):
    kept = []
    for model, drafter, draft, number in zip(p, q, drafts, uniforms, strict=False):
        if number >= model[draft] / drafter[draft]:
            return [*kept, pick([m - d for m, d in zip(model, drafter, strict=True)])]
        kept.append(draft)
    return [*kept, pick(p[-1])]


def returns_a_count(p, q, drafts, uniforms, pick):
    return len(solution(p, q, drafts, uniforms, pick))


def absolute_differences(p, q, drafts, uniforms, pick):
    kept = []
    for model, drafter, draft, number in zip(p, q, drafts, uniforms, strict=False):
        if number >= model[draft] / drafter[draft]:
            return [*kept, pick([abs(m - d) for m, d in zip(model, drafter, strict=True)])]
        kept.append(draft)
    return [*kept, pick(p[-1])]


def one_number_for_all(p, q, drafts, uniforms, pick):
    return solution(p, q, drafts, uniforms[:1] * len(drafts), pick)


def all_or_none(p, q, drafts, uniforms, pick):
    """One rejected draft makes the whole guess worthless."""
    answer = solution(p, q, drafts, uniforms, pick)
    return answer if len(answer) > len(drafts) else solution(p, q, drafts[:1], [1.0], pick)


def a_bonus_in_any_case(p, q, drafts, uniforms, pick):
    kept = []
    for model, drafter, draft, number in zip(p, q, drafts, uniforms, strict=False):
        if number >= model[draft] / drafter[draft]:
            kept.append(pick([max(0.0, m - d) for m, d in zip(model, drafter, strict=True)]))
            break
        kept.append(draft)
    return [*kept, pick(p[-1])]


def keeps_at_equality(p, q, drafts, uniforms, pick):
    """A draft that the model never says is kept if its number is 0."""
    kept = []
    for model, drafter, draft, number in zip(p, q, drafts, uniforms, strict=False):
        if number > model[draft] / drafter[draft]:
            left = [max(0.0, m - d) for m, d in zip(model, drafter, strict=True)]
            return [*kept, pick(left)]
        kept.append(draft)
    return [*kept, pick(p[-1])]


def the_rest_of_the_first_position(p, q, drafts, uniforms, pick):
    """Computes the weights once, before the loop."""
    left = [max(0.0, m - d) for m, d in zip(p[0], q[0], strict=True)]
    for j, draft in enumerate(drafts):
        if uniforms[j] >= p[j][draft] / q[j][draft]:
            return [*drafts[:j], pick(left if sum(left) else p[j])]
    return [*drafts, pick(p[-1])]


def a_bonus_from_the_second_row(p, q, drafts, uniforms, pick):
    return solution([*p[: len(drafts)], p[1]], q, drafts, uniforms, pick)


def rest(p, q):
    return [max(a - b, 0) for a, b in zip(p, q, strict=True)]


def stops_without_a_word(p, q, drafts, uniforms, pick):
    kept = []
    for j in range(len(drafts)):
        if uniforms[j] < p[j][drafts[j]] / q[j][drafts[j]]:
            kept.append(drafts[j])
        else:
            break
    return kept


def skips_the_rejected(p, q, drafts, uniforms, pick):
    """continue instead of break: what follows a rejected word is still tried."""
    result = []
    for j, draft in enumerate(drafts):
        if uniforms[j] < p[j][draft] / q[j][draft]:
            result.append(draft)
        else:
            result.append(pick(rest(p[j], q[j])))
            continue
    result.append(pick(p[-1]))
    return result


def bonus_after_a_rejection(p, q, drafts, uniforms, pick):
    kept = []
    for j, draft in enumerate(drafts):
        if uniforms[j] >= p[j][draft] / q[j][draft]:
            kept.append(pick(rest(p[j], q[j])))
            break
        kept.append(draft)
    kept.append(pick(p[-1]))
    return kept


def picks_with_the_drafter(p, q, drafts, uniforms, pick):
    kept = []
    for j, draft in enumerate(drafts):
        if uniforms[j] < p[j][draft] / q[j][draft]:
            kept.append(draft)
        else:
            return [*kept, pick(q[j])]
    return [*kept, pick(p[len(drafts)])]


def rest_the_wrong_way_round(p, q, drafts, uniforms, pick):
    kept = []
    for j, draft in enumerate(drafts):
        if uniforms[j] < p[j][draft] / q[j][draft]:
            kept.append(draft)
        else:
            return [*kept, pick(rest(q[j], p[j]))]
    return [*kept, pick(p[-1])]


def takes_the_likeliest_instead_of_pick(p, q, drafts, uniforms, pick):
    kept = []
    for j, draft in enumerate(drafts):
        if uniforms[j] < p[j][draft] / q[j][draft]:
            kept.append(draft)
        else:
            left = rest(p[j], q[j])
            return [*kept, left.index(max(left))]
    return [*kept, pick(p[-1])]


def own_random_numbers(p, q, drafts, uniforms, pick):
    kept = []
    for j, draft in enumerate(drafts):
        if CHANCE.random() < p[j][draft] / q[j][draft]:
            kept.append(draft)
        else:
            return [*kept, pick(rest(p[j], q[j]))]
    return [*kept, pick(p[-1])]


def compares_with_the_models_probability(p, q, drafts, uniforms, pick):
    kept = []
    for j, draft in enumerate(drafts):
        if uniforms[j] < p[j][draft]:
            kept.append(draft)
        else:
            return [*kept, pick(rest(p[j], q[j]))]
    return [*kept, pick(p[-1])]


def draft_number_instead_of_draft(p, q, drafts, uniforms, pick):
    kept = []
    for j in range(len(drafts)):
        if uniforms[j] < p[j][j] / q[j][j]:
            kept.append(drafts[j])
        else:
            return [*kept, pick(rest(p[j], q[j]))]
    return [*kept, pick(p[-1])]


def the_kept_as_weights(p, q, drafts, uniforms, pick):
    """min(p, q) instead of the rest."""
    kept = []
    for j, draft in enumerate(drafts):
        if uniforms[j] < p[j][draft] / q[j][draft]:
            kept.append(draft)
        else:
            return [*kept, pick([min(a, b) for a, b in zip(p[j], q[j], strict=True)])]
    return [*kept, pick(p[-1])]


def one_draft_too_few(p, q, drafts, uniforms, pick):
    kept = []
    for j in range(len(drafts) - 1):
        if uniforms[j] < p[j][drafts[j]] / q[j][drafts[j]]:
            kept.append(drafts[j])
        else:
            return [*kept, pick(rest(p[j], q[j]))]
    return [*kept, pick(p[-1])]


def rest_of_the_next_position(p, q, drafts, uniforms, pick):
    kept = []
    for j, draft in enumerate(drafts):
        if uniforms[j] < p[j][draft] / q[j][draft]:
            kept.append(draft)
        else:
            k = min(len(kept) + 1, len(q) - 1)
            return [*kept, pick(rest(p[k], q[k]))]
    return [*kept, pick(p[-1])]


def changes_the_drafts(p, q, drafts, uniforms, pick):
    for j in range(len(drafts)):
        if uniforms[j] >= p[j][drafts[j]] / q[j][drafts[j]]:
            drafts[j:] = [pick(rest(p[j], q[j]))]
            return drafts
    drafts.append(pick(p[-1]))
    return drafts


def never_the_rejected_word(p, q, drafts, uniforms, pick):
    """Draws from the model without the rejected word."""
    kept = []
    for j, draft in enumerate(drafts):
        if uniforms[j] < p[j][draft] / q[j][draft]:
            kept.append(draft)
        else:
            weights = list(p[j])
            weights[draft] = 0
            return [*kept, pick(weights)]
    return [*kept, pick(p[-1])]


def uses_the_first_number_again(p, q, drafts, uniforms, pick):
    kept = []
    for j, draft in enumerate(drafts):
        if uniforms[0] < p[j][draft] / q[j][draft]:
            kept.append(draft)
        else:
            return [*kept, pick(rest(p[j], q[j]))]
    return [*kept, pick(p[-1])]


def rest_of_the_last_row(p, q, drafts, uniforms, pick):
    kept = []
    for j, draft in enumerate(drafts):
        if uniforms[j] < p[j][draft] / q[j][draft]:
            kept.append(draft)
        else:
            return [*kept, pick(rest(p[-1], q[-1]))]
    return [*kept, pick(p[-1])]


WRONG = [
    (draws_from_the_model_again, Promise.MODELS_VOICE, []),
    (keeps_what_the_model_likes_at_least_as_much, Promise.MODELS_VOICE, ["0%"]),
    (upside_down, Promise.MODELS_VOICE, []),
    (goes_on_after_a_refusal, Promise.STOPS_AT_REJECTION, []),
    (forgets_the_bonus, Promise.OWN_TOKEN, []),
    (draws_the_bonus_from_the_row_before, Promise.BONUS, []),
    (keeps_a_likely_draft, Promise.MODELS_VOICE, []),
    (negative_weights, Promise.WEIGHTS, [0]),
    (returns_a_count, Promise.TOKENS, []),
    (absolute_differences, Promise.MODELS_VOICE, []),
    (one_number_for_all, Promise.KEPT, []),
    (all_or_none, Promise.KEPT, []),
    (a_bonus_in_any_case, Promise.STOPS_AT_REJECTION, []),
    (keeps_at_equality, Promise.REJECTED, [0]),
    (the_rest_of_the_first_position, Promise.MODELS_VOICE, [2]),
    (a_bonus_from_the_second_row, Promise.BONUS, []),
    (stops_without_a_word, Promise.OWN_TOKEN, []),
    (skips_the_rejected, Promise.STOPS_AT_REJECTION, []),
    (bonus_after_a_rejection, Promise.STOPS_AT_REJECTION, []),
    (picks_with_the_drafter, Promise.MODELS_VOICE, []),
    (rest_the_wrong_way_round, Promise.MODELS_VOICE, []),
    (takes_the_likeliest_instead_of_pick, Promise.OWN_TOKEN, ["pick()"]),
    (own_random_numbers, Promise.KEPT, ["dog"]),
    (compares_with_the_models_probability, Promise.MODELS_VOICE, []),
    (draft_number_instead_of_draft, Promise.OWN_TOKEN, ["dog", "100%"]),
    (the_kept_as_weights, Promise.MODELS_VOICE, []),
    (one_draft_too_few, Promise.OWN_TOKEN, ["dog", "100%"]),
    (rest_of_the_next_position, Promise.MODELS_VOICE, []),
    (changes_the_drafts, CommonPromise.UNCHANGED, []),
    (never_the_rejected_word, Promise.MODELS_VOICE, []),
    (uses_the_first_number_again, Promise.KEPT, []),
    (rest_of_the_last_row, Promise.WEIGHTS, ["[0.0, 0.0]"]),
]
