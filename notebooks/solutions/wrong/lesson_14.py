"""Lesson 14: plausible wrong parts and the promises that they break."""

from checks.broken import CommonPromise
from checks.lesson_14 import Promise

REJECTED = "number >= model[draft] / drafter[draft]"
LEFT = "max(0.0, mine - its) for mine, its in zip(model, drafter, strict=True)"
BONUS = "return [*kept, pick(p[-1])]"

WRONG = {
    Promise.TOKENS: {"returns_a_count": {BONUS: "return len(kept)"}},
    Promise.MODELS_VOICE: {
        "draws_from_the_model_again": {"pick(left)": "pick(model)"},
        "keeps_what_the_model_likes_at_least_as_much": {REJECTED: "model[draft] < drafter[draft]"},
        "compares_with_the_models_probability": {REJECTED: "number >= model[draft]"},
        "upside_down": {REJECTED: "number * model[draft] >= drafter[draft]"},
        "never_the_rejected_word": {
            LEFT: "share * (word != draft) for word, share in enumerate(model)"
        },
        "the_rest_of_the_first_position": {
            LEFT: LEFT.replace("model, drafter", "p[0], q[0]"),
            "pick(left)": "pick(left if sum(left) else model)",
        },
    },
    Promise.STOPS_AT_REJECTION: {
        "goes_on_after_a_refusal": {"return [*kept, pick(left)]": "draft = pick(left)"}
    },
    Promise.AT_MOST_ONE_MORE: {
        "two_more_for_all_kept": {BONUS: "return [*kept, pick(p[-1]), pick(p[-1])]"}
    },
    Promise.OWN_TOKEN: {
        "forgets_the_bonus": {BONUS: "return kept"},
        "one_draft_too_few": {"drafts, uniforms, strict": "drafts[:-1], uniforms, strict"},
        "takes_the_likeliest_instead_of_pick": {"pick(left)": "left.index(max(left))"},
    },
    Promise.BONUS: {
        "draws_the_bonus_from_the_row_before": {"pick(p[-1])": "pick(p[-2])"},
        "a_bonus_from_the_second_row": {"pick(p[-1])": "pick(p[1])"},
    },
    Promise.ONE_WEIGHT_EACH: {"too_few_weights": {"pick(left)": "pick(left[1:])"}},
    Promise.WEIGHTS: {
        "negative_weights": {"max(0.0, mine - its)": "mine - its"},
        "rest_of_the_last_row": {LEFT: LEFT.replace("model, drafter", "p[-1], q[-1]")},
    },
    Promise.KEPT: {
        "own_random_numbers": {
            REJECTED: REJECTED.replace("number", "CHANCE.random()"),
            "from engine": "import random\n\nfrom engine",
            "import Pick": "import Pick\n\nCHANCE = random.Random(7)",
        },
        "one_number_for_all": {"uniforms, strict": "uniforms[:1] * len(drafts), strict"},
    },
    Promise.REJECTED: {"keeps_at_equality": {"number >=": "number >"}},
    CommonPromise.UNCHANGED: {
        "changes_the_drafts": {BONUS: "drafts.append(pick(p[-1]))\n    return drafts"}
    },
}
