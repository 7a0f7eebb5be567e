"""Compare two runs: align them, find the first decision that differs, and put them on one clock."""
