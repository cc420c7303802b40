"""Which addresses a client may have the router connect to, and which hosts are one's own. Pure.

Decided by the IANA registries of special-purpose addresses (RFC 6890 and its updates), not by
``ipaddress.is_global``, whose tables differ between releases of Python. What carries an IPv4
address inside (mapped, 6to4, Teredo, NAT64 …) is refused whole: where it leads is for a gateway to
say.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final
from urllib.parse import urlsplit

__all__ = ["is_public", "on_own_host"]

_PRIVATE: Final = frozenset({"corp", "home", "internal", "lan", "local", "localhost", "test"})
"""Top-level domains that are not in the public DNS: RFC 6761, RFC 6762 and its appendix G, and
``internal``, which ICANN has reserved.
"""

_HOME: Final = ".home.arpa"
"""The end of names in home networks (RFC 8375)."""

_NO_HOSTS: Final = tuple(
    IPv4Network(block)
    for block in (
        "0.0.0.0/8",  # this network, unspecified
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared (RFC 6598)
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # Azure's agent: a public address that is local to each machine
        "169.254.0.0/16",  # link-local, the metadata of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays (RFC 7526)
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)

_UNICAST: Final = IPv6Network("2000::/3")
"""All that is assigned for global unicast. Outside are loopback, unspecified, mapped, translated
and compatible IPv4, NAT64 (64:ff9b::/96 and 64:ff9b:1::/48), unique local, link-local, site-local
and multicast addresses.
"""

_NO_HOSTS_6: Final = tuple(
    IPv6Network(block)
    for block in (
        "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "3fff::/20",  # documentation (RFC 9637)
    )
)


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether it is the address of a host on the public Internet."""
    if isinstance(address, IPv4Address):
        return not any(address in block for block in _NO_HOSTS)
    if address.scope_id is not None or address not in _UNICAST:
        return False
    return not any(address in block for block in _NO_HOSTS_6)


def on_own_host(url: str) -> bool:
    """Whether the host of a URL is, by its address or its name alone, not on the public Internet.
    Names are not resolved: a public name for a private address counts as public.
    """
    host = (urlsplit(url).hostname or "").rstrip(".")
    try:
        return not is_public(ip_address(host))
    except ValueError:
        return "." not in host or host.rpartition(".")[2] in _PRIVATE or host.endswith(_HOME)
