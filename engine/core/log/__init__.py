"""The event log: vocabulary, log and fold. Imports neither torch nor pandas."""

from engine.core.log.fold import State
from engine.core.log.log import EventLog, LogError
from engine.core.log.vocabulary import SCHEMA_VERSION, AnyEvent, Event

__all__ = ["SCHEMA_VERSION", "AnyEvent", "Event", "EventLog", "LogError", "State"]
