"""The core's tests on CPython 3.14, in Pyodide, which the pages of the static site use.

    make test-core-314 ARGS=tests/engine/test_log.py

Pyodide has neither threads nor processes, and only the libraries of the core. `plugin.py` skips a test
when it asks for something else.
"""
