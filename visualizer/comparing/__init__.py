"""Compare two runs: align them, find their first different decision, and give both the same times."""
