"""Which addresses the router connects to on a client's word."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.fetch.address import is_public, on_own_host

PUBLIC = [
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "93.184.216.34", "100.63.255.255",
    "100.128.0.0", "126.255.255.255", "128.0.0.0", "168.63.129.15", "169.253.255.255",
    "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255", "192.169.0.0",
    "198.17.255.255", "198.20.0.0", "223.255.255.255", "2001:200::1", "2001:4860:4860::8888",
    "2003::1", "2606:4700:4700::1111", "2a00:1450:4001:81b::200e", "3ffe::1",
]  # fmt: skip

NOT_PUBLIC = [
    # unspecified, private, shared, loopback, link-local
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.0", "100.100.100.200",
    "100.127.255.255", "127.0.0.1", "127.255.255.255", "169.254.0.0", "169.254.169.254",
    "172.16.0.0", "172.31.255.255", "192.168.0.1", "192.168.255.255",
    # reserved, documentation, benchmarks, multicast, broadcast, local though it looks public
    "192.0.0.1", "192.0.0.192", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.19.255.255",
    "198.51.100.7", "203.0.113.7", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "168.63.129.16",
    # unspecified, loopback, unique local, link-local, site-local, multicast
    "::", "::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "febf::1", "fec0::1",
    "ff02::1", "ff0e::1",
    # IPv4 inside: mapped, compatible, translated, NAT64 (both prefixes), 6to4, Teredo
    "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "::8.8.8.8", "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::a00:1", "2002:7f00:1::1", "2002:808:808::1",
    "2001::1", "2001:0:7f00:1::1",
    # protocol assignments, benchmarks, ORCHID, documentation, discard, segment routing
    "2001:1::1", "2001:2::1", "2001:10::1", "2001:20::1", "2001:1ff:ffff::1", "2001:db8::1",
    "3fff::1", "3fff:fff::1", "100::1", "5f00::1", "4000::1", "1fff::1", "2606:4700::1%1",
]  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_hosts_of_the_internet(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_others(address: str) -> None:
    assert not is_public(ip_address(address))


ADDRESSES = st.one_of(
    st.integers(0, 2**32 - 1).map(IPv4Address),
    st.integers(0, 2**128 - 1).map(IPv6Address),
    st.integers(0, 2**125 - 1).map(lambda low: IPv6Address((1 << 125) + low)),
)


@settings(deadline=None, max_examples=500)
@given(ADDRESSES)
def test_nothing_that_python_knows_to_be_special_is_public(
    address: IPv4Address | IPv6Address,
) -> None:
    if is_public(address):
        special = ("private", "loopback", "link_local", "multicast", "reserved", "unspecified")
        assert not [name for name in special if getattr(address, f"is_{name}")]


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1:8000", True),
        ("10.0.0.7", True),
        ("100.64.0.9", True),
        ("[::1]:8080", True),
        ("[fd00::1]", True),
        ("localhost:11434", True),
        ("gpu1:8000", True),
        ("gpu1.lan", True),
        ("GPU1.Local.", True),
        ("vllm.models.svc.cluster.local", True),
        ("box.home.arpa", True),
        ("api.openai.com", False),
        ("internal.example.com", False),
        ("home.arpa.example.com", False),
        ("1.1.1.1", False),
        ("[2606:4700::1111]", False),
    ],
)
def test_hosts_of_ones_own(host: str, own: bool) -> None:
    assert on_own_host(f"http://{host}/v1") is own
