"""The board that follows a running server."""
