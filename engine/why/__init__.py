"""Why did this request wait, run, stop or find so much in the cache? Answered from the log alone.

Read in this order: `log_index.py` (the requests and steps of a log), `facts.py` (what the folded state
says about one request in one step), `shortfall.py` (what the head of the queue lacks), `answer.py` (the
words).
"""

from engine.why.answer import why
from engine.why.log_index import WhyError

__all__ = ["WhyError", "why"]
