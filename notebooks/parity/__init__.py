"""vLLM's recorded decisions, replayed by this project's engine: for lesson 14 and `tests/parity`."""
