"""The signatures of beacons: rounds that drand has published are valid, and every change to them is refused."""

import subprocess
import sys

import pytest
from py_arkworks_bls12381 import G1Point

from apps.queue.beacon_chains import (
    CHAINED,
    DEFAULT_NETWORK,
    QUICKNET,
    UNCHAINED_G1,
    Chain,
    find_known,
    is_valid_key,
    is_valid_signature,
    value_of,
)
from tests.support.queue.signed_rounds import (
    DEFAULT_PREVIOUS,
    DEFAULT_ROUND,
    DEFAULT_SIGNATURE,
    DEFAULT_VALUE,
    QUICKNET_ROUND,
    QUICKNET_SIGNATURE,
    QUICKNET_VALUE,
    chain_for_tests,
    sign,
)
from tests.support.servers import CHECKOUT


def test_a_published_round_of_quicknet_is_valid() -> None:
    assert is_valid_signature(QUICKNET.chain, QUICKNET_ROUND, QUICKNET_SIGNATURE)
    assert value_of(QUICKNET_SIGNATURE).hex() == QUICKNET_VALUE


def test_a_published_round_of_the_chained_network_is_valid() -> None:
    assert is_valid_signature(DEFAULT_NETWORK.chain, DEFAULT_ROUND, DEFAULT_SIGNATURE, DEFAULT_PREVIOUS)
    assert value_of(DEFAULT_SIGNATURE).hex() == DEFAULT_VALUE


def test_another_round_is_refused() -> None:
    for number in (QUICKNET_ROUND - 1, QUICKNET_ROUND + 1, 0, -1, 2**64, 10**30):
        assert not is_valid_signature(QUICKNET.chain, number, QUICKNET_SIGNATURE)
    assert not is_valid_signature(DEFAULT_NETWORK.chain, DEFAULT_ROUND - 1, DEFAULT_SIGNATURE, DEFAULT_PREVIOUS)


def test_another_previous_signature_is_refused() -> None:
    for previous in (b"", DEFAULT_SIGNATURE, DEFAULT_PREVIOUS[:-1], DEFAULT_PREVIOUS + b"\0"):
        assert not is_valid_signature(DEFAULT_NETWORK.chain, DEFAULT_ROUND, DEFAULT_SIGNATURE, previous)


def test_another_chain_is_refused() -> None:
    assert not is_valid_signature(chain_for_tests(), QUICKNET_ROUND, QUICKNET_SIGNATURE)
    assert not is_valid_signature(chain_for_tests(CHAINED), DEFAULT_ROUND, DEFAULT_SIGNATURE, DEFAULT_PREVIOUS)
    assert not is_valid_signature(DEFAULT_NETWORK.chain, QUICKNET_ROUND, QUICKNET_SIGNATURE)
    assert not is_valid_signature(QUICKNET.chain, DEFAULT_ROUND, DEFAULT_SIGNATURE, DEFAULT_PREVIOUS)
    unknown = Chain("bls-unchained-on-g1", QUICKNET.chain.public_key)
    assert not is_valid_signature(unknown, QUICKNET_ROUND, QUICKNET_SIGNATURE)


@pytest.mark.parametrize("scheme", [CHAINED, UNCHAINED_G1])
def test_a_wrong_signature_is_refused(scheme: str) -> None:
    chain = chain_for_tests(scheme)
    signed = sign(5, scheme, previous=b"p")
    assert is_valid_signature(chain, 5, signed.signature, b"p") is (scheme == CHAINED)
    signed = sign(5, scheme, previous=b"p" if scheme == CHAINED else b"")
    assert is_valid_signature(chain, 5, signed.signature, signed.previous)
    by_another_key = sign(5, scheme, previous=signed.previous, secret=12)
    assert not is_valid_signature(chain, 5, by_another_key.signature, signed.previous)
    for wrong in (b"", signed.signature[:-1], signed.signature + b"\0", b"\xff" * len(signed.signature)):
        assert not is_valid_signature(chain, 5, wrong, signed.previous)
    for bit in range(0, 8 * len(signed.signature), 97):
        changed = bytearray(signed.signature)
        changed[bit // 8] ^= 1 << bit % 8
        assert not is_valid_signature(chain, 5, bytes(changed), signed.previous)


def test_a_round_has_one_valid_signature_only() -> None:
    """With several encodings of one point, or a point outside the group, the publisher could choose the value."""
    chain, signature = chain_for_tests(), sign(5).signature
    infinity = bytes([0xC0]) + bytes(47)
    assert not is_valid_signature(chain, 5, infinity)
    assert not is_valid_signature(Chain(UNCHAINED_G1, bytes([0xC0]) + bytes(95)), 5, infinity)
    with_infinity_flag = bytes([signature[0] | 0x40]) + signature[1:]
    assert G1Point.from_compressed_bytes(with_infinity_flag) == G1Point.identity(), "the library accepts it"
    assert not is_valid_signature(chain, 5, with_infinity_flag)
    field = int.from_bytes(bytes([signature[0] & 0x1F]) + signature[1:], "big")
    modulus = 0x1A0111EA397FE69A4B1BA7B6434BACD764774B84F38512BF6730D2A0F6B0F6241EABFFFEB153FFFFB9FEFFFFFFFFAAAB
    if (field + modulus).bit_length() <= 381:
        above = (field + modulus).to_bytes(48, "big")
        assert not is_valid_signature(chain, 5, bytes([above[0] | signature[0] & 0xE0]) + above[1:])
    outside = next(
        encoded
        for encoded in (bytes([0x80]) + x.to_bytes(47, "big") for x in range(1, 200))
        if _is_on_curve_outside_the_group(encoded)
    )
    point = G1Point.from_compressed_bytes(signature) + G1Point.from_compressed_bytes_unchecked(outside)
    assert not is_valid_signature(chain, 5, point.to_compressed_bytes())


def _is_on_curve_outside_the_group(encoded: bytes) -> bool:
    try:
        return not G1Point.from_compressed_bytes_unchecked(encoded).is_in_subgroup()
    except ValueError:
        return False


def test_keys_are_checked() -> None:
    assert is_valid_key(QUICKNET.chain)
    assert is_valid_key(DEFAULT_NETWORK.chain)
    assert find_known(QUICKNET.chain) is QUICKNET
    assert find_known(chain_for_tests()) is None
    for scheme, key in (
        (CHAINED, QUICKNET.chain.public_key),
        (UNCHAINED_G1, DEFAULT_NETWORK.chain.public_key),
        (UNCHAINED_G1, b""),
        (UNCHAINED_G1, bytes(96)),
        ("bls", QUICKNET.chain.public_key),
    ):
        assert not is_valid_key(Chain(scheme, key))


@pytest.mark.slow
def test_processes_of_the_fast_path_never_load_the_curve() -> None:
    code = (
        "import django, sys; django.setup(); import ticketing.fastpath_routes, apps.queue.lobby.draw; "
        "from apps.queue.fairness import verification; sys.exit('py_arkworks_bls12381' in sys.modules)"
    )
    environment = {"DJANGO_SETTINGS_MODULE": "ticketing.settings", "PATH": "/usr/bin"}
    found = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, env=environment, timeout=60, check=False)
    assert found.returncode == 0
