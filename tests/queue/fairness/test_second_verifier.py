"""A second verifier, written from docs/fairness.md alone, agrees with Fairgate's verifier on every generated room."""

import hashlib
import json
import uuid
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from py_arkworks_bls12381 import GT, G1Point, G2Point

from apps.queue.fairness import verification
from tests.support.queue.signed_rounds import chain_for_tests, sign
from tests.support.tiers import examples

SIGNED = sign(3)


# --- the second verifier ---------------------------------------------------------------------------------------------
def h(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def second_verifier_accepts(proof: dict[str, Any], get_page: Any) -> bool:
    """Return whether a well-formed proof is valid. Comments number the steps of "To verify" in docs/fairness.md."""
    room, draw = proof["room"], proof["draw"]
    number_of_next, lobby = room["next_number"], room["lobby_count"]
    if lobby >= number_of_next or room["head"] >= number_of_next or (draw is None and lobby):  # 1
        return False
    leaves = {}
    page = proof["places"]
    while True:
        leaves |= dict(enumerate(page["leaves"], page["from"]))
        if page["next"] is None:
            break
        page = get_page("places", page["next"])
    leaves = {number: bytes.fromhex(leaf) for number, leaf in leaves.items() if leaf and number < number_of_next}
    if draw is not None and not is_valid_draw(proof, draw, lobby, leaves, get_page):
        return False
    late = [leaves.get(number) for number in range(lobby + 1, number_of_next)]  # 8
    if None in late or len(set(late)) != len(late):
        return False
    chain = h(b"fairgate queue " + proof["event"].encode()) if late else b""
    for number, leaf in enumerate(late, lobby + 1):
        chain = h(chain, number.to_bytes(8, "big"), leaf or b"")
    if chain.hex() != room["chain_head"]:
        return False
    marks = all_items(proof, "marked", get_page)  # 9
    marked = [item["number"] for item in marks]
    if marked != sorted(set(marked)) or not {item["by"] for item in marks} <= {"vip", "operator"}:
        return False
    admitted_at = [moment(item["at"]) for item in all_items(proof, "admissions", get_page)[: room["admissions_count"]]]
    if admitted_at != sorted(admitted_at):
        return False
    for item in all_items(proof, "admissions", get_page)[: room["admissions_count"]]:
        within = item["from"] <= item["to"] < number_of_next and item["count"] <= item["to"] - item["from"] + 1
        if not within or item["count"] < 1 or (item["reason"] != "marked" and item["to"] > room["head"]):
            return False
    return True


def is_valid_draw(
    proof: dict[str, Any], draw: dict[str, Any], lobby: int, leaves: dict[int, bytes], get_page: Any
) -> bool:
    if h(draw["statement"].encode()).hex() != draw["commitment"]:  # 2
        return False
    statement = json.loads(draw["statement"])
    if statement["event"] != proof["event"] or moment(statement["reveal_by"]) != moment(draw["reveal_by"]):
        return False
    if draw["frozen_at"] is None:  # 3
        return draw["digest"] is None and draw["secret"] is None
    if draw["entrants_count"] != lobby:
        return False
    steps = ("committed_at", "frozen_at", "digest_at", "revealed_at", "drawn_at", "numbered_at")
    moments = [moment(draw[name]) for name in steps if draw[name] is not None]
    if draw["digest"] is None:
        return True
    if moments != sorted(moments):  # 4
        return False
    if draw["drawn_at"] is None:  # 5
        leaves = [bytes.fromhex(leaf) for leaf in all_items(proof, "entrants", get_page)]
        if len(leaves) != lobby or len(set(leaves)) != lobby or h(*sorted(leaves)).hex() != draw["digest"]:
            return False
    if draw["secret"] is None:
        return draw["drawn_at"] is None
    secret, value = bytes.fromhex(draw["secret"]), bytes.fromhex(draw["beacon_value"] or "")  # 6
    promised = statement["beacon"]["source"] != "none"
    if h(secret).hex() != statement["secret_sha256"] or draw["is_operator_proof"] is not bool(value):
        return False
    if (value and not promised) or (promised and not value and moment(draw["revealed_at"]) < moment(draw["reveal_by"])):
        return False
    if value and not is_signed(statement["beacon"], draw, value):
        return False
    seed = h(secret, bytes.fromhex(draw["digest"]), value)
    if seed.hex() != draw["seed"]:
        return False
    if draw["drawn_at"] is not None:  # 7
        drawn = [leaves.get(number, b"") for number in range(1, lobby + 1)]
        if b"" in drawn or h(*sorted(drawn)).hex() != draw["digest"] or len(set(drawn)) != lobby:
            return False
        return drawn == sorted(drawn, key=lambda leaf: (h(seed, leaf), leaf))
    return True


def is_signed(beacon: dict[str, Any], draw: dict[str, Any], value: bytes) -> bool:
    """Check the beacon's value by e(signature, generator) = e(H(message), key), the key on G2."""
    if moment(beacon["at"]) <= moment(draw["digest_at"]) or beacon["scheme"] != "bls-unchained-g1-rfc9380":
        return False
    signature, public = bytes.fromhex(draw["beacon_signature"] or ""), bytes.fromhex(beacon["public_key"])
    try:
        point, key = G1Point.from_compressed_bytes(signature), G2Point.from_compressed_bytes(public)
    except ValueError:
        return False
    dst = b"BLS_SIG_BLS12381G1_XMD:SHA-256_SSWU_RO_NUL_"
    message = G1Point.hash_to_curve(h(beacon["round"].to_bytes(8, "big")), dst)
    return h(signature) == value and bool(GT.pairing_check([point, message], [-G2Point(), key]))


def all_items(proof: dict[str, Any], part: str, get_page: Any) -> list[Any]:
    page, items = proof[part], []
    while True:
        items += page["items"]
        if page["next"] is None:
            return items
        page = get_page(part, page["next"])


# --- generated rooms -------------------------------------------------------------------------------------------------
MOMENT = "2026-11-21T12:00:{:02d}.000Z"


@dataclass
class Paged:
    """A proof document, which contains the first page of each part, and the further pages that a verifier requests."""

    document: dict[str, Any]
    size: int
    pages: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)

    def get(self, part: str, after: int) -> dict[str, Any]:
        return self.pages[part, after]

    def cut(self, part: str, values: list[Any], first: int | None = None) -> dict[str, Any]:
        """Split the values into pages; return the first and store the others for `get`.

        `first` is the number of the first leaf; None for a part that is not a list of leaves.
        """
        name = "items" if first is None else "leaves"
        begin = first or 0
        pieces = [values[at : at + self.size] for at in range(0, len(values), self.size)] or [[]]
        cuts = []
        for index, piece in enumerate(pieces):
            at = begin + index * self.size
            page = {name: piece, "next": at + len(piece) - (first is not None) if index + 1 < len(pieces) else None}
            cuts.append({**page, "from": at} if first is not None else page)
        for before, page in pairwise(cuts):
            self.pages[part, before["next"]] = {"event": "e", "part": part, **page}
        return cuts[0]


@st.composite
def rooms(draw: st.DrawFn) -> Paged:
    stage = draw(st.sampled_from(["none", "open", "closed", "counted", "revealed", "drawn"]))
    lobby = draw(st.integers(0, 7)) if stage != "none" else 0
    late = draw(st.integers(0, 7)) if stage != "open" else 0
    leaves = [h(uuid.uuid5(uuid.NAMESPACE_URL, str(index)).bytes, bytes([index]) * 16) for index in range(lobby + late)]
    entrants, late_leaves = leaves[:lobby], leaves[lobby:]
    secret, digest = b"s" * 32, h(*sorted(entrants))
    promised = draw(st.booleans())
    value = SIGNED.value if promised and draw(st.booleans()) else b""
    key = {"scheme": "bls-unchained-g1-rfc9380", "public_key": chain_for_tests().public_key.hex()} if promised else {}
    seed = h(secret, digest, value)
    statement = {
        "event": "e",
        "rule": "sort by SHA-256(seed ‖ leaf)",
        "secret_sha256": h(secret).hex(),
        "beacon": {"source": "https://b.example" if promised else "none", "round": 3, "at": MOMENT.format(3), **key},
        "reveal_by": MOMENT.format(4),
    }
    text = json.dumps(statement, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    reached = ["open", "closed", "counted", "revealed", "drawn"]

    def from_stage(name: str, content: Any) -> Any:
        """Return the content if the room has reached this stage, else None."""
        return content if stage in reached[reached.index(name) :] else None

    drawn = sorted(entrants, key=lambda leaf: (h(seed, leaf), leaf))
    published = (drawn if stage == "drawn" else []) + late_leaves
    chain = h(b"fairgate queue e") if late_leaves else b""
    for number, leaf in enumerate(late_leaves, lobby + 1):
        chain = h(chain, number.to_bytes(8, "big"), leaf)
    head = draw(st.integers(0, lobby + late))
    admissions = [
        {"at": MOMENT.format(9), "reason": "tick", "from": number, "to": number, "count": 1}
        for number in range(1, head + 1)
    ]
    marked = sorted(draw(st.sets(st.integers(1, lobby + late), max_size=3))) if lobby + late else []
    paged = Paged({}, draw(st.integers(1, 4)))
    paged.document |= {
        "format": 1,
        "event": "e",
        "generated_at": MOMENT.format(10),
        "room": {
            "state": "open",
            "next_number": lobby + late + 1,
            "chain_head": chain.hex(),
            "lobby_count": lobby,
            "head": head,
            "admissions_count": len(admissions),
            "acts_count": 0,
        },
        "draw": None
        if stage == "none"
        else {
            "statement": text,
            "commitment": h(text.encode()).hex(),
            "committed_at": MOMENT.format(0),
            # The same time, in UTC or in another time zone.
            "reveal_by": draw(st.sampled_from([MOMENT.format(4), "2026-11-21T14:00:04+02:00"])),
            "frozen_at": from_stage("closed", MOMENT.format(1)),
            "entrants_count": from_stage("closed", lobby),
            "digest": from_stage("counted", digest.hex()),
            "digest_at": from_stage("counted", MOMENT.format(2)),
            "secret": from_stage("revealed", secret.hex()),
            "beacon_value": from_stage("revealed", value.hex() or None),
            "beacon_signature": from_stage("revealed", SIGNED.signature.hex() if value else None),
            "beacon_previous_signature": None,
            "revealed_at": from_stage("revealed", MOMENT.format(5)),
            "seed": from_stage("revealed", seed.hex()),
            "is_operator_proof": from_stage("revealed", bool(value)),
            "drawn_at": from_stage("drawn", MOMENT.format(6)),
            "numbered_at": from_stage("drawn", MOMENT.format(7)),
        },
        "keys": [],
        "entrants": paged.cut("entrants", sorted(leaf.hex() for leaf in entrants))
        if stage in ("counted", "revealed", "drawn")
        else None,
        "places": paged.cut("places", [leaf.hex() for leaf in published], 1 if stage == "drawn" else lobby + 1),
        "marked": paged.cut("marked", [{"number": number, "by": "vip"} for number in marked]),
        "admissions": paged.cut("admissions", admissions),
        "acts": paged.cut("acts", []),
    }
    return paged


def fairgate_accepts(paged: Paged) -> bool:
    outcome = verification.verify(paged.document, paged.get)
    return isinstance(outcome, verification.Verified)


@given(rooms())
def test_both_verifiers_accept_every_honest_room(paged: Paged) -> None:
    outcome = verification.verify(paged.document, paged.get)
    assert isinstance(outcome, verification.Verified), outcome
    assert second_verifier_accepts(paged.document, paged.get)


@settings(max_examples=examples(300))
@given(rooms(), st.data())
def test_both_verifiers_agree_on_every_tampered_room(paged: Paged, data: st.DataObject) -> None:
    """One value of the proof is changed. Either both verifiers refuse the proof, or both accept it, because the value
    is not needed at that stage."""
    document = paged.document
    leaves = [
        document["places"]["leaves"],
        *(page["leaves"] for key, page in paged.pages.items() if key[0] == "places"),
    ]
    kind = data.draw(st.sampled_from(["leaf", "swap", "drop", "room", "draw"]))
    where = data.draw(st.sampled_from(leaves))
    is_changed = True
    if kind == "leaf" and where:
        where[data.draw(st.integers(0, len(where) - 1))] = "ab" * 32
    elif kind == "swap" and len(where) > 1:
        where[0], where[-1] = where[-1], where[0]
    elif kind == "drop" and where:
        where[data.draw(st.integers(0, len(where) - 1))] = None
    elif kind == "room":
        name = data.draw(st.sampled_from(["next_number", "lobby_count", "chain_head"]))
        old = document["room"][name]
        document["room"][name] = "cd" * 32 if name == "chain_head" else max(1 if name == "next_number" else 0, old - 1)
        is_changed = document["room"][name] != old
    elif kind == "draw" and document["draw"]:
        name = data.draw(
            st.sampled_from(
                ["commitment", "digest", "secret", "seed", "is_operator_proof", "beacon_signature", "beacon_value"]
            )
        )
        old = document["draw"][name]
        is_changed = old is not None
        if is_changed:
            document["draw"][name] = (not old) if isinstance(old, bool) else "ef" * 32
    else:
        is_changed = False
    is_accepted = fairgate_accepts(paged)
    assert is_accepted == second_verifier_accepts(document, paged.get)
    if is_changed and kind != "room":
        assert not is_accepted
