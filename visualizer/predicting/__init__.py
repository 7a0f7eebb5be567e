"""Questions about what the engine does next, and the widget that asks them."""
