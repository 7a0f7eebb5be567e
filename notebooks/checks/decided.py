"""A question in the scheduler's seat: the reader decides, and the real scheduler goes on from there.

    ANSWERS = {"first": decided("eviction", 13, {"the letter": Evict(1), "the clock": Evict(2)})}

Nothing is right or wrong: the reply to each option is the consequence that a rerun has. The run is
that of a scenario of the gallery, or the one that a function returns; `reveal` compares it with the
lesson's.
"""

from collections.abc import Callable, Mapping

from checks.answer import Answer
from engine.core.log import EventLog
from engine.simulation.choice import Choice
from engine.simulation.scenarios import scenario
from visualizer.seat.seat import Seat


def decided(
    run: str | Callable[[], EventLog], step: int, choices: Mapping[str, Choice], then: str = ""
) -> Answer:
    """Return the answer to a question whose options are choices in a step of a run.

    The first one that changes nothing is what happened. Raises ValueError if there is none, and
    ChoiceError for an impossible choice.
    """
    log = scenario(run).run() if isinstance(run, str) else run()
    seat = Seat(log)
    taken = {option: seat.take(step, choice) for option, choice in choices.items()}
    decisions = log.deterministic()[1:]
    happened = [option for option, one in taken.items() if one.log.deterministic()[1:] == decisions]
    if not happened:
        raise ValueError(f"one option must be what happened, got {[*choices]}")
    said = {option: str(one) for option, one in taken.items()}
    return Answer(
        happened[0],
        {option: words for option, words in said.items() if option != happened[0]},
        then=then,
        source="The run",
        fits=lambda other: other.deterministic()[1:] == decisions,
        said=said,
    )
