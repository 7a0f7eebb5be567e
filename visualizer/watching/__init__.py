"""A board that follows a running server."""
