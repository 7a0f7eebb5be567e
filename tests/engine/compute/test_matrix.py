"""Int8 weights: what rounding changes, and that every use of the matrix agrees with it."""

import pytest
import torch

from engine.compute.model.embedding import Embedding
from engine.compute.weights.matrix import Int8Matrix, equal

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture
def weight():
    torch.manual_seed(0)
    weight = torch.randn(24, 40) * torch.logspace(-3, 1, 24)[:, None]
    weight[5] = 0
    return weight


def test_a_value_moves_by_half_a_step_of_its_row_at_most(weight):
    matrix = Int8Matrix.quantize(weight, torch.float32)
    assert matrix.values.dtype == torch.int8
    assert matrix.shape == (24, 40)
    step = weight.abs().amax(dim=1, keepdim=True) / 127
    assert ((matrix.dequantize() - weight).abs() <= step * 0.5001).all()
    torch.testing.assert_close(matrix.dequantize().abs().amax(dim=1), weight.abs().amax(dim=1))


def test_int8_values_and_a_row_of_zeros_are_kept_exactly(weight):
    weight = (torch.arange(24 * 40) % 255 - 127.0).reshape(24, 40)
    weight[:, 0], weight[3] = 127, 0
    assert Int8Matrix.quantize(weight, torch.float32).dequantize().equal(weight)


def test_matrices_are_equal_if_kind_and_values_are(weight):
    matrix = Int8Matrix.quantize(weight, torch.float32)
    assert equal(matrix, Int8Matrix.quantize(weight.clone(), torch.float32))
    assert equal(weight, weight.clone())
    assert not equal(matrix, Int8Matrix.quantize(-weight, torch.float32))
    assert not equal(matrix, Int8Matrix.quantize(2 * weight, torch.float32))
    assert not equal(matrix, matrix.dequantize())
    assert not equal(matrix.dequantize(), matrix)
    assert not equal(weight, weight + 1)


def test_rows_may_be_filled_in_chunks(weight):
    matrix = Int8Matrix.empty(24, 40, dtype=torch.float32)
    for first in range(0, 24, 7):
        matrix[first : first + 7] = weight[first : first + 7]
    whole = Int8Matrix.quantize(weight, torch.float32)
    assert matrix.values.equal(whole.values)
    assert matrix.scales.equal(whole.scales)
    assert matrix[7:14].dequantize().equal(whole.dequantize()[7:14])


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_embedding_returns_the_matrix_rows_in_the_models_precision(weight, dtype):
    ids = torch.tensor([3, 0, 3, 23, 5])
    matrix = Int8Matrix.quantize(weight, dtype)
    rows = Embedding(matrix)(ids)
    assert rows.dtype == dtype
    assert rows.equal(matrix.dequantize()[ids])
    assert Embedding(weight)(ids).equal(weight[ids])
