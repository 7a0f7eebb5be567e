"""Other people's clients against a running server, each as its own documentation says to use it.

    python -m tests.clients [CLIENT ...]

makes environments below `build/clients/` with the versions in `requirements-*.txt`, starts servers,
lets every session run and prints a table. A session is a script that knows its client and
`checks.py`; the expected values come from a plain HTTP request, never from the client itself.
"""
