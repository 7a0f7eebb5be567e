"""The addresses at which other machines reach this server."""

import ipaddress
import socket
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class Address:
    """A numeric address of this machine, and the name of its network interface ("" if unknown)."""

    address: str
    interface: str = ""

    def url(self, port: int) -> str:
        """Return the URL of the live page."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{port}/"


def network_addresses(host: str) -> list[Address]:
    """Return the addresses at which a server that listens on `host` is reached, the best one first.

    Empty if `host` can be reached only from this machine. The best address is that of the default
    route; further ones belong to other networks, or to virtual machines and containers.
    """
    own = [
        Address(one.address, interface)
        for interface, addresses in psutil.net_if_addrs().items()
        for one in addresses
        if one.family in (socket.AF_INET, socket.AF_INET6) and _is_reachable(one.address)
    ]
    if host == "0.0.0.0":
        own = [one for one in own if ":" not in one.address]
    elif host != "::":
        if not _is_reachable(host):
            return []
        return [one for one in own if one.address == host] or [Address(host)]
    routed = routed_address()
    return sorted(own, key=lambda one: (one.address != routed, ":" in one.address))


def routed_address() -> str | None:
    """Return this machine's network address. UDP only looks up the route, so nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        try:
            route.connect(("192.0.2.1", 9))  # an address that is never assigned (RFC 5737)
        except OSError:
            return None
        return str(route.getsockname()[0])


def _is_reachable(address: str) -> bool:
    """Whether another machine can use this address; names count as reachable, except localhost."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return "%" not in address and address != "localhost"
    return not (parsed.is_loopback or parsed.is_link_local or parsed.is_unspecified)
