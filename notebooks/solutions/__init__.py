"""One solution to each exercise. There are others: the checks test what a part does, not how."""
