"""Rounds of a beacon for tests: published ones of drand's networks, and ones signed with a test key."""

import hashlib

from py_arkworks_bls12381 import G1Point, G2Point, Scalar

from apps.kernel import clock
from apps.queue.beacon_chains import CHAINED, UNCHAINED_G1, Chain
from apps.queue.lobby.beacon import Round, Signed

QUICKNET_ROUND = 657_413
QUICKNET_SIGNATURE = bytes.fromhex(
    "b713718a38ae728dfd477991af2822e08d2f305e47718cef9f7848ce4050e7be41076862b98fad56e91a6b85b89cd97b"
)
"""As published by drand's quicknet."""
QUICKNET_VALUE = "fc1873a13f3545aeade8401532ef5519920652eee6b0d2b19ca12643b87b3587"
DEFAULT_ROUND = 3_311_596
DEFAULT_SIGNATURE = bytes.fromhex(
    "a696b9409ababce45749c3a4ec369074453dd4a79967734e1390d969c8ad8d98897d217b9121e92c8ddebbddda8d92f9"
    "00e3bd6bf9deb166863b1a19390d743f82774001487594c5c09e581db7365f02b70a2c8cc41ce32446ef08e4890c4754"
)
"""As published by drand's default network."""
DEFAULT_PREVIOUS = bytes.fromhex(
    "8ed588f2a7716fb1349e2d9803da5db0005e98a83783c353d4a08f183236a9ad91d70ddb01266f4b7c576983db464b43"
    "0e65680b9e0098552758afd6c1e6afcb77e3f62fe1b93d42d1cb63abbb2205512fe12fbf74ea9c5ac3b8f5c1e283a1d8"
)
DEFAULT_VALUE = "647c07b2abbf7ff2afb4d670214f565e5cd9f9c91bfdcecb59a21f3c78d73920"

_SECRET = 4_711


def chain_for_tests(scheme: str = UNCHAINED_G1, secret: int = _SECRET) -> Chain:
    """Return a chain whose secret key the tests know."""
    generator = G1Point() if scheme == CHAINED else G2Point()
    return Chain(scheme, (generator * Scalar(secret)).to_compressed_bytes())


def sign(number: int, scheme: str = UNCHAINED_G1, *, previous: bytes = b"", secret: int = _SECRET) -> Signed:
    """Return the signature of a round by the key of `chain_for_tests`."""
    message = hashlib.sha256(previous + number.to_bytes(8, "big")).digest()
    if scheme == CHAINED:
        point = G2Point.hash_to_curve(message, b"BLS_SIG_BLS12381G2_XMD:SHA-256_SSWU_RO_NUL_")
    else:
        point = G1Point.hash_to_curve(message, b"BLS_SIG_BLS12381G1_XMD:SHA-256_SSWU_RO_NUL_")
    return Signed((point * Scalar(secret)).to_compressed_bytes(), previous)


def make_round(source: str, number: int, chain: Chain | None = None) -> Round:
    """Return a round of the test's chain, or of another."""
    return Round(source, number, clock.process_now(), chain or chain_for_tests())
