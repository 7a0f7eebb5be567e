"""The options of replicas: what they reject, without starting Ray."""

import importlib.util

import pytest

from server.gateway import ray_cluster
from tests.server.console import invoke, refused
from tests.server.ray.cluster import free_port


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["--replicas", "0"], ["--replicas", 1, 0]),
        (["--replicas", "3", "--max-replicas", "2"], ["--max-replicas", "--replicas", 3, 2]),
        (["--max-replicas", "2"], ["--max-replicas", "--replicas N"]),
        (["--ray", "auto"], ["--ray", "--replicas N"]),
        (["--replicas", "2", "--replica", "http://a:1"], ["--replica", "--replicas"]),
        (["--replicas", "2", "--trace-file", "a.jsonl"], ["--trace-file", "--replicas", "/trace"]),
        (["--replicas", "2", "--kv-events", "5557"], ["--kv-events", "--replicas", "--router"]),
        (
            ["--replicas", "2", "--model", "auto", "--model-dir", "docs"],
            ["--model-dir", "--replicas"],
        ),
        (["--replicas", "2", "--router", "nearest"], ["--router", "prefix_events", "nearest"]),
        (["--replicas", "2", "--policy", "random"], ["--policy", "fcfs", "random"]),
        (["--replicas", "2", "--block-size", "0"], ["--block-size", 0]),
        (["--replicas", "2", "--ray", "here"], ["--ray", "auto", "HOST:PORT", "here"]),
    ],
)
def test_wrong_option_is_one_line(arguments: list[str], facts: list[object]) -> None:
    refused(invoke("serve", "--port", "0", *arguments), *facts)


def test_address_without_a_cluster_is_one_line() -> None:
    address = f"127.0.0.1:{free_port('127.0.0.1')}"
    refused(invoke("serve", "--port", "0", "--replicas", "2", "--ray", address), "--ray", address)


def test_missing_ray_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "find_spec", lambda _name: None)
    assert importlib.util.find_spec("ray") is not None
    refused(
        invoke("serve", "--port", "0", "--replicas", "2"),
        "--replicas",
        "pip install 'underglass[cluster]'",
    )


def test_a_class_has_one_engine() -> None:
    refused(invoke("class", "--replicas", "2"), "--replicas")
