"""Packed or not, a projection is the same product."""

import pytest
import torch
from torch.nn import functional as F

from engine.compute.model import linear
from engine.compute.model.linear import Linear


def drawn(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.manual_seed(5)).to(dtype)


@pytest.mark.parametrize("bias", [None, drawn(40)], ids=["without bias", "with bias"])
@pytest.mark.parametrize("tokens", [1, 3, 4, 31, 32, 33, 40, 101])
def test_any_number_of_tokens_gives_the_plain_product(tokens, bias):
    weight, x = drawn(40, 24), drawn(tokens, 24)
    expected = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
    before = x.clone()
    torch.testing.assert_close(Linear(weight, bias)(x).double(), expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(x, before)


def test_what_cannot_be_packed_is_computed_all_the_same(monkeypatch):
    half, x = drawn(40, 24, dtype=torch.bfloat16), drawn(8, 24)
    assert torch.equal(Linear(half)(x.bfloat16()), F.linear(x.bfloat16(), half))
    weight = drawn(40, 24)
    monkeypatch.setattr(linear, "_MAX_WEIGHTS", weight.numel() - 1)
    assert torch.equal(Linear(weight)(x), F.linear(x, weight))
    monkeypatch.undo()
    monkeypatch.setattr(linear, "_CAN_PACK", False)
    assert torch.equal(Linear(weight)(x), F.linear(x, weight))
