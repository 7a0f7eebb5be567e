"""transformers as the judge: the logits that it computes, and whether ours equal them."""

import torch

from tests.engine.compute.driver import Driver

PROMPT = [(7 * i * i + 3) % 97 for i in range(41)]


def reference_logits(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0]


def last_logits(directory, tokens=PROMPT, num_blocks=80, change=lambda config: config):
    driver = Driver(directory, change, num_blocks)
    return driver.logits([driver.row(driver.request(tokens))])


def departs(directory, model, change=lambda config: config):
    """Whether a model with its configuration changed leaves transformers behind."""
    logits = last_logits(directory, change=change)
    return (logits - reference_logits(model, PROMPT)[-1:]).abs().max() > 0.01
