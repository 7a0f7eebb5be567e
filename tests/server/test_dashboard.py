"""docs/grafana.json: its metrics exist, and each of its queries has data in a real Prometheus."""

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.server.harness import fetch, post, start

BOARD = json.loads((Path(__file__).parents[2] / "docs" / "grafana.json").read_text("utf-8"))
QUERIES = [one["expr"] for panel in BOARD["panels"] for one in panel["targets"]]
CONFIG = """
global: {scrape_interval: 1s}
scrape_configs: [{job_name: underglass, static_configs: [{targets: ["%s"]}]}]
"""


def test_every_metric_exists(url):
    families = text_string_to_metric_families(fetch(url, "/metrics").text)
    served = {sample.name for family in families for sample in family.samples}
    asked = {name for query in QUERIES for name in re.findall(r"\w+:\w+", query)}
    assert len(QUERIES) > 20 and asked <= served
    assert all(panel["options"]["legend"]["showLegend"] for panel in BOARD["panels"])


@pytest.fixture
def prometheus(soak, tmp_path) -> Iterator[tuple[str, str]]:
    """A server with little memory under Prometheus: the URLs of both."""
    if not soak or shutil.which("prometheus") is None:
        pytest.skip("only with --soak, and with Debian's package prometheus")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with start(engine={"block_size": 4, "max_kv_tokens": 64, "token_budget": 16}) as server:
        config = tmp_path / "prometheus.yml"
        config.write_text(CONFIG % server.url.removeprefix("http://"))
        options = [f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}"]
        command = ["prometheus", *options, f"--web.listen-address={address}", "--log.level=error"]
        with subprocess.Popen(command) as process:
            yield server.url, f"http://{address}/api/v1/query"
            process.terminate()


def test_every_query_has_data(prometheus):
    """The requests preempt each other and evict each other's prefixes, until every rate is known."""
    url, api = prometheus
    empty, client = QUERIES, httpx.Client(transport=httpx.HTTPTransport(retries=9))
    while empty:
        prompts = [letter * 20 for letter in "abcdab"]
        post(url, "/v1/completions", {"prompt": prompts, "max_tokens": 20, "stream": False})
        empty = [query for query in empty if not numbers(client, api, query)]


def numbers(client: httpx.Client, api: str, query: str) -> list[float]:
    """The values of a query as Grafana asks it, without those that are not known yet."""
    asked = query.replace("$__rate_interval", "1m").replace("$model", ".*")
    answer = client.get(api, params={"query": asked.replace("$instance", ".*")}).json()
    assert answer["status"] == "success", answer
    return [value for one in answer["data"]["result"] if (value := float(one["value"][1])) >= 0]
