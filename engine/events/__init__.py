"""The event log: vocabulary, log and fold. Imports neither torch nor pandas."""

from engine.events.fold import State
from engine.events.log import EventLog, LogError
from engine.events.vocabulary import SCHEMA_VERSION, AnyEvent, Event

__all__ = ["SCHEMA_VERSION", "AnyEvent", "Event", "EventLog", "LogError", "State"]
