"""Random schemas among plain requests, with tight memory, drafts, samples and asynchronous scheduling.

`python -m benchmarks structured` does the same for 1,000 schemas.
"""

from random import Random

import pytest

from benchmarks.schemas import Mixed, fits, random_settings
from engine.config import EngineConfig
from tests.engine.bundled import bundled_engine


def served(mixed, config, **parts):
    done = bundled_engine(config, **parts).complete(mixed.prompts, mixed.params, progress=False)
    assert not any(one.error for one in done)
    return done


@pytest.mark.parametrize("seed", range(2))
def test_answers_have_their_shape_and_no_token_depends_on_the_scheduling(seed):
    rng = Random(seed)
    mixed = Mixed.draw(rng, shapes=4, plain=2)
    plain = EngineConfig(token_budget=256, max_kv_tokens=4096, jump_forward=False)
    expected = served(mixed, plain)
    for schema, one in zip(mixed.samples(), expected, strict=True):
        assert schema is None or one.finish_reason == "length" or fits(one.text, schema)
    config, parts = random_settings(rng)
    done = served(mixed, config, **parts)
    assert [one.token_ids for one in done] == [one.token_ids for one in expected]

    neighbours = served(mixed.only_plain(), plain)
    beside = [one for one, schema in zip(done, mixed.samples(), strict=True) if schema is None]
    assert [one.token_ids for one in neighbours] == [one.token_ids for one in beside]
