"""Packing: rows are nearly full, and no document sees another."""

import torch

from engine.training.run import make_batch
from engine.training.tokenizer import IGNORED


def test_a_batch_depends_on_seed_and_number_alone(tokenizer):
    one, again = (make_batch(tokenizer, 5, 3, 4, 256) for _ in range(2))
    other = make_batch(tokenizer, 5, 4, 4, 256)
    assert all(torch.equal(a, b) for a, b in zip(one, again, strict=True))
    assert not torch.equal(one.tokens, other.tokens)


def test_rows_are_nearly_full_and_documents_do_not_see_each_other(tokenizer):
    batch = make_batch(tokenizer, 0, 0, 8, 256)
    padding = (batch.targets == IGNORED) & (batch.tokens == 0)
    assert padding.float().mean() < 0.2
    for tokens, mask in zip(batch.tokens, batch.mask[:, 0], strict=True):
        starts = [place for place in range(255) if tokens[place] == 0 and tokens[place + 1] != 0]
        for place in range(256):
            seen = mask[place].nonzero().flatten().tolist()
            assert seen == list(range(seen[0], place + 1))
            if tokens[place] != 0:
                assert seen[0] == max(start for start in starts if start <= place)
