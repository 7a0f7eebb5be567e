"""/join: the addresses at which a class opens the live page, each with a QR code to scan."""

import io

import segno
from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from server.core.addresses import network_addresses

# A phone's camera needs a margin of four modules around the code (ISO/IEC 18004).
_MARGIN = 4


class JoinAddress(BaseModel):
    """An address of the live page."""

    address: str = Field(description="The numeric address and the port, as a person types them.")
    url: str
    interface: str = Field(description="The network interface, such as eth0; may be empty.")
    qr: str = Field(description="The URL as a QR code: an SVG image, black on white.")


class JoinAddresses(BaseModel):
    """How to open the live page from another machine; the best address comes first.

    The list is empty if the server can only be reached from this machine.
    """

    addresses: list[JoinAddress]


def routes(host: str) -> APIRouter:
    """Return the route /join of a server that listens on `host`."""
    router = APIRouter(tags=["Operation"])

    @router.get("/join")
    def join(request: Request) -> JoinAddresses:
        """Return the addresses at which other machines open the live page, with QR codes."""
        port = request.scope["server"][1]
        addresses = []
        for network in network_addresses(host):
            url = network.url(port)
            address, qr = url.removeprefix("http://").rstrip("/"), _qr_code(url)
            addresses.append(
                JoinAddress(address=address, url=url, interface=network.interface, qr=qr)
            )
        return JoinAddresses(addresses=addresses)

    return router


def _qr_code(url: str) -> str:
    """Return a QR code as an SVG image that takes the size of its box."""
    image = io.BytesIO()
    code = segno.make(url, error="m", micro=False)
    code.save(image, kind="svg", border=_MARGIN, light="#fff", omitsize=True, xmldecl=False)
    return image.getvalue().decode()
