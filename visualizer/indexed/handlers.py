"""What the parts of a collector do with an event: a method for each kind that concerns them."""

from collections.abc import Callable
from typing import Any

from engine.core.log.vocabulary import Event

Handlers = dict[type[Event], Callable[[Any], None]]
