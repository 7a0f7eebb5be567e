"""Recognize Mooncake's request traces, which `mooncake_run.py` plays on the simulator."""

from engine.simulation.facts import simulated_facts
from visualizer.sources.reader import Reader, Translator

FACTS = simulated_facts({"arrivals": "recorded"})
_FIELDS = (b'"timestamp"', b'"input_length"', b'"output_length"', b'"hash_ids"')


def _translator() -> Translator:
    from visualizer.sources.mooncake_run import MooncakeTranslator

    return MooncakeTranslator()


MOONCAKE = Reader(
    name="mooncake",
    title="Mooncake request trace",
    facts=FACTS,
    recognizes=lambda line: all(name in line for name in _FIELDS),
    translator=_translator,
)
