"""One solution to each exercise. There are others: the checks ask what a part does, not how."""
