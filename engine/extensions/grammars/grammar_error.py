"""The error of a shape that cannot be compiled."""


class GrammarError(ValueError):
    """A schema, an expression or a grammar cannot be compiled. The message names the part."""
