"""Lesson 13: plausible wrong parts and the promises that they break."""

from checks.lesson_13 import Promise, cases
from tests.lessons.wrong import Wrong

CASES = cases()[-1:]  # the afternoon
SJF = "**tried(log, 17, {'policy': 'sjf'})"


def with_(name: str, promise: str, entries: str) -> Wrong:
    """The solution's report, with other entries."""
    return Wrong(name, promise, f"found = solution(log)\nreturn found | {{{entries}}}")


WRONG = [
    Wrong("returns_an_id", Promise.KEYS, "return read(log).requests.index[0]"),
    with_("a_stranger", Promise.IN_THE_LOG, "'request': 99"),
    with_("the_longest_run", Promise.LONGEST_WAIT, "'request': 11"),
    with_("an_invented_cause", Promise.CAUSE_IN_THE_LOG, "'cause': 'no_place'"),
    with_("a_list_of_causes", Promise.CAUSE_IN_THE_LOG, "'cause': ['batch_full']"),
    with_("a_rare_cause", Promise.MOST_STEPS, "'cause': 'whole_sequence'"),
    with_("evidence_in_words", Promise.EVIDENCE_STEPS, "'evidence': 'all of them'"),
    with_("evidence_of_another_cause", Promise.EVIDENCE_HAS_CAUSE, "'evidence': [40, 45, 41]"),
    with_("evidence_after_the_wait", Promise.EVIDENCE_IN_WAIT, "'evidence': [76]"),
    with_("one_step_of_evidence", Promise.ENOUGH_EVIDENCE, "'evidence': [40]"),
    with_("no_change", Promise.CHANGE, "'change': {}"),
    with_(
        "all_of_the_trial",
        Promise.CHANGE,
        "'change': {key: found[key] for key in ('change', 'gain', 'cost')}",
    ),
    with_("an_unknown_setting", Promise.REPLAYABLE, "'change': {'memory': 9}"),
    with_("a_change_in_vain", Promise.SHORTER, "'change': {'max_kv_tokens': 960}, 'gain': 0"),
    with_("a_guessed_gain", Promise.GAIN, "'gain': 30"),
    with_("a_gain_that_is_a_float", Promise.GAIN, "'gain': float(found['gain'])"),
    with_("no_cost", Promise.HIGHEST_COST, f"{SJF}, 'cost': None"),
    with_("a_guessed_cost", Promise.COST_IN_REPLAY, f"{SJF}, 'cost': (20, 1)"),
    with_("a_cost_without_a_payer", Promise.COST, f"{SJF}, 'cost': 77"),
]
