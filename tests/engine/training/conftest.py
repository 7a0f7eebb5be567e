import pytest
import torch

from engine.training.corpus import texts
from engine.training.tokenizer import train_tokenizer


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tokenizer():
    """A tokenizer like the bundled one, trained on a tenth of the documents."""
    return train_tokenizer(texts(0, 3000))
