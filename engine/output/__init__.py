"""Tools a model can call while it writes: the calculator."""
