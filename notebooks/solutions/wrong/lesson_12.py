"""Lesson 12: plausible wrong parts and the promises that they break."""

from checks.lesson_12 import Promise, cases

CASES = cases()[-1:]  # the afternoon
SJF = "**tried(log, 17, {'policy': 'sjf'})"


def with_(entries: str) -> str:
    """Code that returns the solution's report with other entries."""
    return f"found = solution(log)\nreturn found | {{{entries}}}"


WRONG = {
    Promise.KEYS: {"returns_an_id": "return read(log).requests.index[0]"},
    Promise.IN_THE_LOG: {"a_stranger": with_("'request': 99")},
    Promise.LONGEST_WAIT: {"the_longest_run": with_("'request': 11")},
    Promise.CAUSE_IN_THE_LOG: {
        "a_list_of_causes": with_("'cause': ['batch_full']"),
    },
    Promise.MOST_STEPS: {"a_rare_cause": with_("'cause': 'whole_sequence'")},
    Promise.EVIDENCE_STEPS: {"evidence_in_words": with_("'evidence': 'all of them'")},
    Promise.EVIDENCE_HAS_CAUSE: {"evidence_of_another_cause": with_("'evidence': [40, 45, 41]")},
    Promise.EVIDENCE_IN_WAIT: {"evidence_after_the_wait": with_("'evidence': [76]")},
    Promise.ENOUGH_EVIDENCE: {"one_step_of_evidence": with_("'evidence': [40]")},
    Promise.CHANGE: {
        "no_change": with_("'change': {}"),
        "all_of_the_trial": with_(
            "'change': {key: found[key] for key in ('change', 'gain', 'cost')}"
        ),
    },
    Promise.REPLAYABLE: {"an_unknown_setting": with_("'change': {'memory': 9}")},
    Promise.SHORTER: {"a_change_in_vain": with_("'change': {'max_kv_tokens': 960}, 'gain': 0")},
    Promise.GAIN: {
        "a_gain_that_is_a_float": with_("'gain': float(found['gain'])"),
    },
    Promise.HIGHEST_COST: {"no_cost": with_(f"{SJF}, 'cost': None")},
    Promise.COST_IN_REPLAY: {"a_guessed_cost": with_(f"{SJF}, 'cost': (20, 1)")},
    Promise.COST: {"a_cost_without_a_payer": with_(f"{SJF}, 'cost': 77")},
}
