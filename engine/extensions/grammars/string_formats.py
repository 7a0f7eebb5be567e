r"""Regular expressions for the values of JSON Schema's `format`, and of the formats that pydantic adds.

An expression may cover fewer texts than its standard. It has to where validators disagree with the
standard, because every text that a mask allows must be accepted by the client: Python has no year 0 and
no second 60, and a pydantic `HttpUrl` has no other format than `uri`. The library's own expressions are
not used.

    date, time  years 1 to 9999, no leap second, up to 6 decimal places, "T" and "Z" in capital letters
    duration    up to 4 digits for each part
    uri         http and https, with a domain name or an IPv4 address
    email       ASCII, with a domain of at least two labels
    base64      of ASCII text: pydantic's `Base64Str` has the same format as its `Base64Bytes`
    regex       characters, classes and groups of one level, as ECMA-262 and Python both read them

A format that is not listed is an annotation and says nothing about the text, as in JSON Schema.
"""

import re
import string

_HEX = "[0-9a-fA-F]"


def _date() -> str:
    year = "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
    by_four = "(?:0[48]|[2468][048]|[13579][26])"
    leap = f"(?:[0-9]{{2}}{by_four}|{by_four}00)"
    day = (
        "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
        "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    )
    return f"(?:{year}-{day}|{leap}-02-29)"


def _duration() -> str:
    n = "[0-9]{1,4}"
    time = f"(?:{n}H(?:{n}M(?:{n}S)?)?|{n}M(?:{n}S)?|{n}S)"
    date = f"(?:{n}Y(?:{n}M(?:{n}D)?)?|{n}M(?:{n}D)?|{n}D)"
    return f"P(?:{date}(?:T{time})?|T{time}|{n}W)"


def _ipv6() -> str:
    group = f"{_HEX}{{1,4}}"
    forms = [f"(?:{group}:){{7}}{group}"]
    for before in range(8):  # the groups left of "::", which stands for one group at least
        left = f"{group}(?::{group}){{{before - 1}}}" if before else ""
        after = 7 - before
        right = f"(?:{group}(?::{group}){{0,{after - 1}}})?" if after else ""
        forms.append(f"{left}::{right}")
    return f"(?:{'|'.join(forms)})"


def _regex() -> str:
    quantified = "[*+?]?"
    plain = r"[A-Za-z0-9 _,:;@%=!<>&/-]"
    one = rf"(?:{plain}|\\[dDwWsS.*+?]|\.|\[\^?(?:[A-Za-z0-9_]|a-z|A-Z|0-9)+\]){quantified}"
    group = rf"\((?:\?:)?(?:{one})+(?:\|(?:{one})+)*\){quantified}"
    return rf"\^?(?:{one}|{group})*(?:\|(?:{one}|{group})+)*\$?"


def _uuid(version: str) -> str:
    if not version:
        return f"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}"
    return f"{_HEX}{{8}}-{_HEX}{{4}}-{version}{_HEX}{{3}}-[89abAB]{_HEX}{{3}}-{_HEX}{{12}}"


def _base64(extra: str) -> str:
    """Return an expression for ASCII text in base64: the first bit of every byte is 0."""
    digits = string.ascii_uppercase + string.ascii_lowercase + string.digits + extra

    def those(*bits: int) -> str:
        return f"[{''.join(re.escape(one) for i, one in enumerate(digits) if not i & sum(bits))}]"

    first, second, third, fourth = those(32), those(8), those(2), those()
    end = f"{first}{those(8, 7)}==|{first}{second}{those(2, 1)}="
    return f"(?:{first}{second}{third}{fourth})*(?:{end})?"


_DATE = _date()
_TIME = (
    r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
    "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_BYTE}(?:\.{_BYTE}){{3}}"
_IPV6 = _ipv6()
_IPV4_NETWORK = (
    rf"(?:{_IPV4}(?:/32)?|(?:{_BYTE}\.){{3}}0/24|(?:{_BYTE}\.){{2}}0\.0/16|{_BYTE}\.0\.0\.0/8)"
)
_IPV6_NETWORK = rf"(?:{_IPV6}(?:/128)?|(?:{_HEX}{{1,4}}:){{1,4}}:/64)"
_IPV4_INTERFACE = rf"{_IPV4}(?:/(?:[12]?[0-9]|3[0-2]))?"
_IPV6_INTERFACE = rf"{_IPV6}(?:/(?:[1-9]?[0-9]|1[01][0-9]|12[0-8]))?"
_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,58}[a-zA-Z0-9])?"
_NAME = "[a-z0-9]{1,25}(?:-[a-z0-9]{1,25})?"  # "--" would announce an encoded label
# A last label of letters. The names that are reserved for tests and local use, such as "test" and
# "localhost", are no part of an address that can be reached; mail libraries reject them.
_TOP = (
    "(?:[a-z]{2,3}|info|name|aero|coop|jobs|mobi|asia|post|blog|shop|tech|club|cloud|store|online"
    "|museum|travel)"
)
_PATH = "(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9a-fA-F]{2})"
_URI = (
    rf"https?://(?:(?:{_NAME}\.)*[a-z][a-z0-9]{{0,24}}|{_IPV4})(?::(?:[1-9][0-9]{{0,3}}|[1-5][0-9]{{4}}))?"
    rf"(?:/{_PATH}*)?(?:\?(?:{_PATH}|\?)*)?(?:#(?:{_PATH}|\?)*)?"
)
_EMAIL = (
    r"[A-Za-z0-9]{1,20}(?:[._+-][A-Za-z0-9]{1,20}){0,2}"
    rf"@(?:{_NAME}\.){{1,3}}{_TOP}"
)
_HOSTNAME = rf"{_LABEL}(?:\.{_LABEL}){{0,3}}"
_POINTER = "(?:/(?:[^~/]|~[01])*)*"

EXPRESSIONS = {
    # JSON Schema, draft 2020-12
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "duration": _duration(),
    "email": _EMAIL,
    "idn-email": _EMAIL,
    "hostname": _HOSTNAME,
    "idn-hostname": _HOSTNAME,
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "uri": _URI,
    "uri-reference": _URI,
    "iri": _URI,
    "iri-reference": _URI,
    "uri-template": _URI,
    "uuid": _uuid(""),
    "json-pointer": _POINTER,
    "relative-json-pointer": f"(?:0|[1-9][0-9]{{0,3}})(?:#|{_POINTER})",
    "regex": _regex(),
    # pydantic
    **{f"uuid{version}": _uuid(version) for version in "12345678"},
    "ipv4network": _IPV4_NETWORK,
    "ipv6network": _IPV6_NETWORK,
    "ipv4interface": _IPV4_INTERFACE,
    "ipv6interface": _IPV6_INTERFACE,
    "ipvanyaddress": f"(?:{_IPV4}|{_IPV6})",
    "ipvanynetwork": f"(?:{_IPV4_NETWORK}|{_IPV6_NETWORK})",
    "ipvanyinterface": f"(?:{_IPV4_INTERFACE}|{_IPV6_INTERFACE})",
    "binary": r"[\x00-\x7f]*",  # bytes: `maxLength` counts them, so a character must be one byte
    "base64": _base64("+/"),
    "base64url": _base64("_-"),
    "fraction": "-?[0-9]{1,15}(?:/[1-9][0-9]{0,14})?",
}
# Formats that clients do check, and that no expression describes.
NOT_GUARANTEED = frozenset(
    {"multi-host-uri", "json-string", "file-path", "directory-path", "name-email"}
)


def whole(expression: str) -> str:
    """Return a `pattern` that a whole string must match."""
    return f"^(?:{expression})$"
