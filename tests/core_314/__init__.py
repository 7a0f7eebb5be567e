"""The core's tests on CPython 3.14, in Pyodide, which the pages of the static site use.

    python -m tests.core_314 [ARGUMENTS OF PYTEST]

Pyodide has neither threads nor processes, and only the libraries of the core. `plugin.py` skips a test
when it asks for something else.
"""
