"""Labels: who asks, as the log and the pictures show it.

A label comes in a body (`user`), a header (`X-Client`) or an address (`?client=`). Over HTTP the header
wins: a client library may fill `user` by itself. Over LMTP the call's `user` wins: header and address
are those of the whole connection.
"""

from server.core.limits import MAX_NAME_LENGTH


def label_in(header: str) -> str:
    """The label that a header or an address carries.

    Servers read headers as Latin-1, shells and most clients send UTF-8: "ZoÃ«" is Zoë. What is no UTF-8
    stays as it was read. A header cannot be refused as a field can, so one that is too long is cut.
    """
    try:
        label = header.encode("latin-1").decode()
    except UnicodeError:
        label = header
    return label[:MAX_NAME_LENGTH]
