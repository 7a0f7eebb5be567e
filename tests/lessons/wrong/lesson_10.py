"""Lesson 10: plausible wrong parts and the promises that they break."""

from checks.broken import CommonPromise
from checks.lesson_10 import Promise
from tests.lessons.wrong import Wrong

REJECTED = "number >= model[draft] / drafter[draft]"
LEFT = "max(0.0, mine - its) for mine, its in zip(model, drafter, strict=True)"
BONUS = "return [*kept, pick(p[-1])]"
WRONG = [
    Wrong("returns_a_count", Promise.TOKENS, {BONUS: "return len(kept)"}),
    Wrong("draws_from_the_model_again", Promise.MODELS_VOICE, {"pick(left)": "pick(model)"}),
    Wrong(
        "keeps_what_the_model_likes_at_least_as_much",
        Promise.MODELS_VOICE,
        {REJECTED: "model[draft] < drafter[draft]"},
    ),
    Wrong(
        "compares_with_the_models_probability",
        Promise.MODELS_VOICE,
        {REJECTED: "number >= model[draft]"},
    ),
    Wrong(
        "upside_down", Promise.MODELS_VOICE, {REJECTED: "number * model[draft] >= drafter[draft]"}
    ),
    Wrong(
        "never_the_rejected_word",
        Promise.MODELS_VOICE,
        {LEFT: "share * (word != draft) for word, share in enumerate(model)"},
    ),
    Wrong(
        "the_rest_of_the_first_position",
        Promise.MODELS_VOICE,
        {
            LEFT: LEFT.replace("model, drafter", "p[0], q[0]"),
            "pick(left)": "pick(left if sum(left) else model)",
        },
    ),
    Wrong(
        "goes_on_after_a_refusal",
        Promise.STOPS_AT_REJECTION,
        {"return [*kept, pick(left)]": "draft = pick(left)"},
    ),
    Wrong(
        "two_more_for_all_kept",
        Promise.AT_MOST_ONE_MORE,
        {BONUS: "return [*kept, pick(p[-1]), pick(p[-1])]"},
    ),
    Wrong("forgets_the_bonus", Promise.OWN_TOKEN, {BONUS: "return kept"}),
    Wrong(
        "one_draft_too_few",
        Promise.OWN_TOKEN,
        {"drafts, uniforms, strict": "drafts[:-1], uniforms, strict"},
    ),
    Wrong(
        "takes_the_likeliest_instead_of_pick",
        Promise.OWN_TOKEN,
        {"pick(left)": "left.index(max(left))"},
    ),
    Wrong("draws_the_bonus_from_the_row_before", Promise.BONUS, {"pick(p[-1])": "pick(p[-2])"}),
    Wrong("a_bonus_from_the_second_row", Promise.BONUS, {"pick(p[-1])": "pick(p[1])"}),
    Wrong("too_few_weights", Promise.ONE_WEIGHT_EACH, {"pick(left)": "pick(left[1:])"}),
    Wrong("negative_weights", Promise.WEIGHTS, {"max(0.0, mine - its)": "mine - its"}),
    Wrong(
        "rest_of_the_last_row",
        Promise.WEIGHTS,
        {LEFT: LEFT.replace("model, drafter", "p[-1], q[-1]")},
    ),
    Wrong(
        "own_random_numbers",
        Promise.KEPT,
        {
            REJECTED: REJECTED.replace("number", "CHANCE.random()"),
            "from engine": "import random\n\nfrom engine",
            "import Pick": "import Pick\n\nCHANCE = random.Random(7)",
        },
    ),
    Wrong(
        "one_number_for_all",
        Promise.KEPT,
        {"uniforms, strict": "uniforms[:1] * len(drafts), strict"},
    ),
    Wrong("keeps_at_equality", Promise.REJECTED, {"number >=": "number >"}),
    Wrong(
        "changes_the_drafts",
        CommonPromise.UNCHANGED,
        {BONUS: "drafts.append(pick(p[-1]))\n    return drafts"},
    ),
]
