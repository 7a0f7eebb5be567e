"""`--served-model-name`: a chosen name is the only one; without it, one model answers for any name."""

from collections.abc import Iterator

import pytest

from server.core.settings import ServerSettings
from tests.facts import assert_names
from tests.server.gateway.cluster import start_gateway
from tests.server.gateway.conftest import wait_for
from tests.server.harness import fetch, get, post, refusal, start
from tests.server.test_wrong_fields import VALID
from underglass.commands.replicas import replica_environment

BODIES = {path: body for path, body in VALID.items() if not path.startswith("/engine")}


@pytest.fixture(scope="module", params=["server", "gateway"])
def named(request: pytest.FixtureRequest) -> Iterator[str]:
    with start(server={"served_model_name": ["story/teller", "story"]}) as server:
        if request.param == "server":
            yield server.url
            return
        with start_gateway(server.url) as gateway:
            wait_for(gateway.url, "0")
            yield gateway.url


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
def test_only_a_chosen_name_is_served(named, path, stream):
    body = BODIES[path] | ({"stream": True} if stream and path.startswith("/v1") else {})
    unknown = post(named, path, body | {"model": "gpt-4o"})
    assert refusal(unknown) == (404, "model_not_found")
    assert unknown.json()["error"]["param"] == "model"
    assert_names(unknown.json()["error"]["message"], "gpt-4o", "/v1/models")
    for right in ("story/teller", "story", "", None):
        assert post(named, path, body | {"model": right}).status_code == 200, right


def test_the_list_has_the_chosen_name(named):
    assert [model["id"] for model in get(named, "/v1/models")["data"]] == ["story/teller", "story"]
    assert get(named, "/v1/models/story/teller")["id"] == "story/teller"
    assert fetch(named, "/v1/models/alphabet").status_code == 404


def test_replicas_get_every_name():
    """The variables that start a replica are read as the options that the user gave."""
    given = {"served_model_name": ["story", "teller"], "token_budget": 64}
    variables = replica_environment(given, ServerSettings())
    assert variables["UNDERGLASS_SERVED_MODEL_NAME"].split() == ["story", "teller"]
    assert variables["UNDERGLASS_TOKEN_BUDGET"] == "64"
