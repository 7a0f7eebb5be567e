"""vLLM's recorded decisions, replayed by this project's engine: for lesson 11 and `tests/parity`."""
