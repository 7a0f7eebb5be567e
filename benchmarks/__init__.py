"""Measure the figures that the documentation states: `python -m benchmarks --help`.

Tests never assert speed. Here it is measured as a ratio between two ways of doing the same work, run in
turns (ABABAB...), so that a slow machine slows down both. The output is the median of the pairs' ratios
and the range of the middle half.
"""
