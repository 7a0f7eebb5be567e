"""Answer from the log alone why a request waited, ran, stopped, or had so much of its prompt cached.

Read in this order: `log_index.py` (the requests and steps of a log), `facts.py` (what the folded state
says about one request in one step), `shortfall.py` (what the head of the queue lacks), `answer.py` (the
words).

Then `missed.py` (why the cached prefix was not longer) and `stuck.py` (the queue of a step).
`visualizer/reading/waterfall` says where a request's time went.
"""

from visualizer.reading.why.answer import why
from visualizer.reading.why.log_index import WhyError

__all__ = ["WhyError", "why"]
