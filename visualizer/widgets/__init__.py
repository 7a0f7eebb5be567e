"""The board and its panels as notebook widgets."""
