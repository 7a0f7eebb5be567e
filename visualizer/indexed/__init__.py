"""A log as typed columns in chunks, beside its JSON Lines: read where it is needed, and quickly.

Read `columns.py` first (how values become columns), then `chunk.py` (some events), `facts.py` and
`collector.py` (what is known of each step and request once the log is folded), `index_file.py` (the
file), `indexed_log.py` (the log that reads it), `known.py` (the facts of a log, with or without an
index), and `beside.py` (when a log's index is made and used).
"""
