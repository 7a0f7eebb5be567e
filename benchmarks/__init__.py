"""Each figure that the project states, as a command anyone can run: `make bench`.

Speed is never asserted in a test. Here it is measured as a ratio between two ways of doing the same
work, run in turns within one process (ABABAB...), so that a machine that slows down slows both. What is
printed is the median of the pairs' ratios and the range of the middle half.
"""
