"""The addresses at which a class joins, and their QR codes."""

import socket
import xml.etree.ElementTree as ElementTree
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from server.core import addresses
from server.core.addresses import Address, network_addresses
from server.core.settings import ServerSettings
from server.serving import listen_for
from tests.server.harness import ForkedServer, get, post

V4, V6 = socket.AF_INET, socket.AF_INET6


@pytest.fixture
def routed() -> str:
    return "192.168.1.20"


@pytest.fixture
def interfaces(monkeypatch: pytest.MonkeyPatch, routed: str) -> None:
    """A laptop with a container bridge, a VPN, Wi-Fi with IPv6, and an unplugged cable."""

    def nic(family: socket.AddressFamily, address: str) -> Any:
        return SimpleNamespace(family=family, address=address)

    cards = {
        "lo": [nic(V4, "127.0.0.1"), nic(V6, "::1")],
        "docker0": [nic(V4, "172.17.0.1")],
        "eth0": [nic(V4, "10.1.1.1")],
        "tun0": [nic(V4, "10.8.0.2")],
        "eth9": [nic(V4, "169.254.7.7")],  # no network gave it an address
        "wlan0": [nic(V4, "192.168.1.20"), nic(V6, "fe80::1%wlan0"), nic(V6, "2001:db8::5")],
    }
    states = {
        name: SimpleNamespace(
            isup=name != "eth0", flags="up,pointopoint" if name == "tun0" else "up"
        )
        for name in cards
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: cards)
    monkeypatch.setattr(psutil, "net_if_stats", lambda: states)
    monkeypatch.setattr(addresses, "routed_address", lambda: routed)


@pytest.mark.usefixtures("interfaces")
@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("0.0.0.0", ["192.168.1.20", "10.8.0.2"]),
        ("::", ["192.168.1.20", "2001:db8::5", "10.8.0.2"]),
        ("172.17.0.1", ["172.17.0.1"]),
        ("lab.example.org", ["lab.example.org"]),
        ("127.0.0.1", []),
        ("127.0.0.2", []),
        ("localhost", []),
        ("::1", []),
    ],
)
def test_the_best_address_comes_first_and_unreachable_ones_are_left_out(host, expected):
    assert [one.address for one in network_addresses(host)] == expected


@pytest.mark.usefixtures("interfaces")
@pytest.mark.parametrize(
    ("routed", "first"), [("10.8.0.2", "192.168.1.20"), ("172.17.0.1", "172.17.0.1")]
)
def test_a_vpn_comes_last_and_the_default_route_may_use_a_bridge(routed, first):
    assert network_addresses("0.0.0.0")[0].address == first
    urls = {one.interface: one.url(80) for one in network_addresses("::")}
    assert "http://[2001:db8::5]:80/" in urls.values()  # an IPv6 address has brackets
    assert urls["tun0"] == "http://10.8.0.2:80/"


def test_a_server_on_loopback_cannot_be_joined(url):
    assert get(url, "/join") == {"addresses": []}


def test_a_server_on_all_interfaces_tells_each_address_with_its_code(serve):
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


@pytest.fixture
def address() -> Address:
    return next(iter(network_addresses("0.0.0.0")), None) or pytest.skip("no network")


@pytest.mark.parametrize(("key", "count"), [(None, 2), ("secret", 1)])
def test_with_one_address_the_controls_stay_on_loopback(key, count, address):
    listeners = listen_for(ServerSettings(host=address.address, api_key=key), 0)
    with ExitStack() as stack:
        names = [stack.enter_context(one).getsockname() for one in listeners]
    hosts = ["127.0.0.1", address.address]
    assert [host for host, _ in names] == hosts[-count:]
    assert len({port for _, port in names}) == 1


def test_a_class_may_listen_on_one_network_and_prints_where(tmp_path, address):
    trace = str(tmp_path / "class.jsonl")
    arguments = ["class", "--port", "0", "--host", address.address, "--trace-file", trace]
    with ForkedServer("underglass.commands", *arguments) as server:
        port = server.url.rpartition(":")[2]
        assert server.url == f"http://127.0.0.1:{port}"
        [joined] = get(server.url, "/join")["addresses"]
        assert joined["url"] == address.url(int(port))
        assert get(joined["url"], "/health")["paused"]
        assert post(server.url, "/engine/step").status_code == 200
        assert post(joined["url"].rstrip("/"), "/engine/step").status_code == 403
        server.process.terminate()
        assert address.url(int(port)) in server.process.stdout.read().decode()
