"""The addresses at which a class joins, and their QR codes."""

import socket
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from server.core import addresses
from server.core.addresses import network_addresses
from server.process import BackgroundServer
from tests.server.harness import get, http

V4, V6 = socket.AF_INET, socket.AF_INET6


@pytest.fixture
def interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A laptop with a container bridge, a wireless and an IPv6 network."""

    def nic(family: socket.AddressFamily, address: str) -> Any:
        return SimpleNamespace(family=family, address=address)

    cards = {
        "lo": [nic(V4, "127.0.0.1"), nic(V6, "::1")],
        "docker0": [nic(V4, "172.17.0.1")],
        "eth9": [nic(V4, "169.254.7.7")],  # no network gave it an address
        "wlan0": [nic(V4, "192.168.1.20"), nic(V6, "fe80::1%wlan0"), nic(V6, "2001:db8::5")],
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: cards)
    monkeypatch.setattr(addresses, "routed_address", lambda: "192.168.1.20")


@pytest.mark.usefixtures("interfaces")
@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("0.0.0.0", ["192.168.1.20", "172.17.0.1"]),
        ("::", ["192.168.1.20", "172.17.0.1", "2001:db8::5"]),
        ("172.17.0.1", ["172.17.0.1"]),
        ("lab.example.org", ["lab.example.org"]),
        ("127.0.0.1", []),
        ("127.0.0.2", []),
        ("localhost", []),
        ("::1", []),
    ],
)
def test_the_best_address_comes_first_and_unreachable_ones_are_left_out(
    host: str, expected: list[str]
) -> None:
    assert [one.address for one in network_addresses(host)] == expected


@pytest.mark.usefixtures("interfaces")
def test_an_address_knows_its_interface_and_an_ipv6_url_has_brackets() -> None:
    first, *_, last = network_addresses("::")
    assert (first.interface, first.url(8000)) == ("wlan0", "http://192.168.1.20:8000/")
    assert last.url(80) == "http://[2001:db8::5]:80/"


def test_a_server_on_loopback_cannot_be_joined(url: str) -> None:
    assert get(url, "/join") == {"addresses": []}


def test_a_server_on_all_interfaces_tells_each_address_with_a_code_that_is_an_image(
    serve: Callable[..., BackgroundServer],
) -> None:
    url = serve(server={"host": "0.0.0.0"}).url
    port = url.rpartition(":")[2]
    told = get(url, "/join")["addresses"]
    assert [one["address"] for one in told] == [
        f"{one.address}:{port}" for one in network_addresses("0.0.0.0")
    ]
    for one in told:
        assert one["url"] == f"http://{one['address']}/"
        image = ElementTree.fromstring(one["qr"])
        left, top, width, height = map(float, image.attrib["viewBox"].split())
        # Version 2 has 25 x 25 modules, and a margin of 4 is on each side (ISO/IEC 18004).
        assert (left, top) == (0, 0) and width == height and width >= 25 + 8


def test_the_addresses_need_the_key(serve: Callable[..., BackgroundServer]) -> None:
    with http(serve(server={"api_key": "secret"}).url) as client:
        assert client.get("/join").status_code == 401
