"""The decoder against transformers, in float32, and the KV blocks that attention reads."""

import pytest
import torch

from engine.core import runner
from tests.engine.compute.driver import BLOCK_SIZE, Driver
from tests.engine.compute.judge import PROMPT, reference_logits
from tests.facts import raises_naming


def test_logits_equal_those_of_transformers(any_model):
    directory, model = any_model
    driver = Driver(directory)
    request = driver.request(PROMPT[:1])
    # Drafts make the runner compute the logits of every position.
    logits = driver.logits([driver.row(request, drafts=PROMPT[1:])])
    torch.testing.assert_close(logits, reference_logits(model, PROMPT), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_close(any_model, dtype):
    directory, model = any_model
    driver = Driver(directory, dtype=dtype)
    logits = driver.logits([driver.row(driver.request(PROMPT))])
    expected = reference_logits(model, PROMPT)[-1:]
    assert (logits - expected).abs().max() < 0.05 * expected.abs().max()


def mixed_step(driver, poison):
    """Three decodes, one of them at a block's first slot, and a chunk in the middle of a prompt."""
    decodes = [driver.request(PROMPT[:n]) for n in (3, 8, 14)]
    chunked = driver.request(PROMPT)
    driver.run([driver.row(r) for r in decodes] + [driver.row(chunked, 10)])
    rows = [driver.row(r) for r in decodes] + [driver.row(chunked, 13)]
    if poison:
        driver.poison([*decodes, chunked])
    return driver.logits([rows[3], *rows[:3]])


def test_nan_in_unreferenced_slots_and_another_placement_change_no_bit(any_model, soak):
    directory, _ = any_model
    clean = Driver(directory)
    clean.kv.zero_()
    expected = mixed_step(clean, poison=False)
    assert torch.isfinite(expected).all()
    for seed in range(1, 6 if soak else 2):
        assert torch.equal(mixed_step(Driver(directory, seed=seed), poison=True), expected)


@pytest.mark.parametrize("padding", [0, 6, 10**6], ids=["apart", "some together", "together"])
@pytest.mark.parametrize("name", ["gpt2", "qwen3", "gemma3"])
def test_rows_that_share_an_attention_call_or_not_read_the_same(
    a_model, name, padding, monkeypatch
):
    expected = mixed_step(Driver(a_model(name)[0]), poison=True)
    monkeypatch.setattr(runner, "MAX_PADDING", padding)
    logits = mixed_step(Driver(a_model(name)[0]), poison=True)
    torch.testing.assert_close(logits, expected, atol=2e-5, rtol=1e-4)


def test_copies_run_before_the_pass_and_leave_the_source_alone(qwen3):
    """Two samples share a partly filled block; one copies it before it writes."""
    driver = Driver(qwen3[0])
    one = driver.request(PROMPT[:10])
    driver.run([driver.row(one)])
    other = driver.request(one.tokens[:10])
    other.tokens.append(one.tokens[10] + 1)
    other.num_computed_tokens = 10
    copy = driver.free.pop()
    source = one.block_table[10 // BLOCK_SIZE]
    other.block_table = [*one.block_table[:-1], copy]
    expected = [driver_alone(qwen3[0], request.tokens) for request in (one, other)]
    logits = []
    forward = driver.runner._model.forward
    driver.runner._model.forward = lambda *a: logits.append(forward(*a)) or logits[-1]
    driver.run([driver.row(one), driver.row(other)], copies=[(source, copy)])
    torch.testing.assert_close(logits[0], torch.cat(expected), atol=2e-5, rtol=1e-4)


def driver_alone(directory, tokens):
    driver = Driver(directory)
    return driver.logits([driver.row(driver.request(tokens))])


def test_copies_of_one_step_run_in_order(qwen3):
    driver = Driver(qwen3[0], num_blocks=4)
    driver.kv[:] = torch.arange(4.0).view(1, 4, 1, 1, 1, 1)
    driver.runner.run([], [(0, 1), (1, 2), (3, 1)])
    assert driver.kv[0, :, 0, 0, 0, 0].tolist() == [0, 3, 0, 3]


def test_a_table_that_is_too_short_is_an_error(qwen3):
    driver = Driver(qwen3[0])
    request = driver.request(PROMPT)
    row = driver.row(request)
    request.block_table.pop()
    with raises_naming(ValueError, 1, 10, 11):
        driver.runner.run([row], [])


def test_damaged_kv_is_an_error_not_a_token(qwen3):
    driver = Driver(qwen3[0])
    request = driver.request(PROMPT)
    driver.run([driver.row(request)])
    driver.kv.fill_(float("nan"))
    with pytest.raises(FloatingPointError):
        driver.run([driver.row(request)])
