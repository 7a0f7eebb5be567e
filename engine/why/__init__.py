"""Why did this request wait, run, stop or find so much in the cache? Answered from the log alone.

Read in this order: `log_index.py` (the requests and steps of a log), `facts.py` (what the folded state
says about one request in one step), `shortfall.py` (what the head of the queue lacks), `answer.py` (the
words).

Then `missed.py` (why a request found no longer prefix), `stuck.py` (the queue of a step) and
`inference.py` (the reasons that a foreign log lacks). Where a request's time went is in
`engine/events/waterfall`.
"""

from engine.why.answer import why
from engine.why.log_index import WhyError

__all__ = ["WhyError", "why"]
