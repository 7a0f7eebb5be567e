"""The addresses at which other machines reach this server."""

import ipaddress
import re
import socket
from dataclasses import dataclass

import psutil

# Names of interfaces that lead to containers or virtual machines on this machine.
_INSIDE = re.compile(
    r"docker|br-|veth|virbr|vboxnet|vmnet|vnic|cni|podman|lxc|lxd|vEthernet|bridge"
)
_TUNNEL = "pointopoint"  # the flag of a VPN's interface


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
    route, unless it belongs to a tunnel (a VPN), which leads to other machines than those in the room.
    Networks of containers and virtual machines inside this machine are left out, unless there is no
    other one.
    """
    states = psutil.net_if_stats()
    own = [
        Address(one.address, interface)
        for interface, addresses in psutil.net_if_addrs().items()
        if interface not in states or states[interface].isup
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
    outside = [one for one in own if one.address == routed or not _INSIDE.match(one.interface)]
    tunnels = {name for name, one in states.items() if _TUNNEL in one.flags}
    return sorted(
        outside or own,
        key=lambda one: (one.interface in tunnels, one.address != routed, ":" in one.address),
    )


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
