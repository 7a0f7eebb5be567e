"""Why did this request wait, run, stop, find that much in the cache? Answered from the log alone.

Read in this order: `directory.py` (who and which steps are in a log), `facts.py` (what the folded
state says about one request in one step), `answer.py` (that in words).
"""

from engine.why.answer import why
from engine.why.log_index import WhyError

__all__ = ["WhyError", "why"]
