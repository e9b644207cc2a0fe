"""The verifier: recomputes every position of a queue from published data alone.

It takes JSON and returns the verified facts or the first mismatch. It uses no Django, database or clock, so anyone can
copy this module with json_fields.py, apps/queue/proofs.py and apps/queue/beacon_chains.py and run it. Only the
signature of a beacon needs a library (py_arkworks_bls12381). docs/fairness.md describes the format.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice, pairwise
from typing import Any

from apps.queue import beacon_chains, proofs
from apps.queue.beacon_chains import Chain
from apps.queue.fairness.json_fields import (
    Document,
    Mismatch,
    MismatchFound,
    read_hex,
    read_integer,
    read_leaf,
    read_list,
    read_moment,
    read_object,
    read_optional_moment,
    read_text,
    shorten,
)

FORMAT = 1
MARKS = ("vip", "operator")
REASONS = ("tick", "empty line", "operator", "marked")
PROGRESS_EVERY = 10_000

Fetch = Callable[[str, int], Document]
"""Fetches a further page: part ("places", "entrants", …) and the `next` of the previous page."""
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class WatchedLeaf:
    """The leaf of a receipt, and the chain when the receipt was issued."""

    leaf: bytes
    next_number: int
    chain_head: bytes


@dataclass(frozen=True, slots=True)
class Verified:
    """The verified facts, up to the time of the document."""

    event: str
    next_number: int
    chain_head: str
    lobby_count: int
    drawn_count: int
    first_come_count: int
    marked: tuple[int, ...]
    admissions_count: int
    acts_count: int
    is_operator_proof: bool | None
    """None: there was no draw, or its secret is not revealed yet."""
    stage: str
    """The lobby's stage: none, open, closed, counted, revealed, drawn."""
    notes: tuple[str, ...] = ()
    watched_number: int | None = None
    """The number of the watched leaf, if it has one."""
    watched_is_entrant: bool = False


def verify(
    document: Any,
    fetch: Fetch,
    *,
    progress: Progress | None = None,
    watch: WatchedLeaf | None = None,
    earlier: Any = None,
    whole: bool = False,
) -> Verified | Mismatch:
    """Verify every position from the document and its further pages; return the first mismatch if there is one.

    `watch`: also look for this leaf, and verify that the chain includes the state on its receipt. `earlier`: a whole
    document saved before, which this one must continue. `whole`: the document must have no further pages.
    """
    try:
        return _Verification(document, fetch, progress, watch, earlier, whole).run()
    except MismatchFound as differs:
        return differs.mismatch


@dataclass
class _Verification:
    document: Any
    fetch: Fetch
    progress: Progress | None
    watch: WatchedLeaf | None
    earlier: Any
    whole: bool
    event: str = ""
    notes: list[str] = field(default_factory=list)
    watched_number: int | None = None
    watched_is_entrant: bool = False
    is_operator_proof: bool | None = None

    def run(self) -> Verified:
        document = read_object(self.document, "the document")
        if document.get("format") != FORMAT:
            raise MismatchFound(f"the format is {document.get('format')!r}, but only {FORMAT} is supported")
        self.event = read_text(document, "event")
        self.generated_at = read_moment(document, "generated_at")
        self.room = read_object(document.get("room"), "room")
        self.next_number = read_integer(self.room, "next_number", least=1)
        self.lobby_count = read_integer(self.room, "lobby_count")
        self.head = read_integer(self.room, "head")
        self.chain_head = read_hex(self.room, "chain_head", (0, 32))
        if self.lobby_count >= self.next_number:
            raise MismatchFound(f"{self.lobby_count} lobby entries, but the next number is {self.next_number}")
        if self.head >= self.next_number:
            raise MismatchFound(f"the head is {self.head}, but the next number is {self.next_number}")
        if self.whole:
            self._check_whole()
        self._read_earlier()
        stage = self._check_draw(document.get("draw"))
        leaves = self._leaves(1 if stage == "drawn" else self.lobby_count + 1, self.next_number - 1)
        drawn = self._check_drawn_numbers(leaves) if stage == "drawn" else 0
        self._check_first_come(leaves)
        marked = self._check_marked()
        admissions = self._check_admissions()
        acts = self._check_acts()
        self._check_watched(stage)
        return Verified(
            event=self.event,
            next_number=self.next_number,
            chain_head=self.chain_head.hex(),
            lobby_count=self.lobby_count,
            drawn_count=drawn,
            first_come_count=self.next_number - 1 - self.lobby_count,
            marked=tuple(marked),
            admissions_count=admissions,
            acts_count=acts,
            is_operator_proof=self.is_operator_proof,
            stage=stage,
            notes=tuple(self.notes),
            watched_number=self.watched_number,
            watched_is_entrant=self.watched_is_entrant,
        )

    def _check_whole(self) -> None:
        """Require that no part has a further page and that no leaf is after the last number."""
        for part in ("places", "entrants", "marked", "admissions", "acts"):
            if part == "entrants" and self.document.get(part) is None:
                continue
            page = read_object(self.document.get(part), part)
            if "next" not in page:
                raise MismatchFound(f"{part}.next is missing: in a whole document it is null")
            if page["next"] is not None:
                raise MismatchFound(f"{part}.next is {page['next']!r}: this is not a whole document")
        page = self.document["places"]
        if read_integer(page, "from") + len(read_list(page, "leaves")) > self.next_number:
            raise MismatchFound("a leaf is published after the last number of the document", self.next_number)

    # --- the draw ------------------------------------------------------------------------------------------------
    def _check_draw(self, given: Any) -> str:
        """Check the commitment and the steps of the draw so far; return its stage. Sets `draw`, `digest` and `seed` if
        they exist."""
        if given is None:
            if self.lobby_count:
                raise MismatchFound(f"the room has a lobby of {self.lobby_count} entries without a draw")
            return "none"
        self.draw = draw = read_object(given, "draw")
        statement_text = read_text(draw, "statement")
        self.commitment = read_hex(draw, "commitment", (32,))
        if proofs.sha256(statement_text.encode()) != self.commitment:
            raise MismatchFound("the commitment is not the SHA-256 of the statement")
        statement = _parse_statement(statement_text)
        if statement.get("event") != self.event:
            raise MismatchFound(f"the statement is of event {statement.get('event')!r}")
        if read_moment(statement, "reveal_by") != read_moment(draw, "reveal_by"):
            raise MismatchFound(
                f"the secret was to be revealed by {statement['reveal_by']}, now by {draw['reveal_by']}"
            )
        frozen_at = read_optional_moment(draw, "frozen_at")
        if frozen_at is None:
            if draw.get("digest") is not None or draw.get("secret") is not None:
                raise MismatchFound("a digest or secret is published before the lobby has closed")
            return "open"
        entrants = read_integer(draw, "entrants_count")
        if entrants != self.lobby_count:
            raise MismatchFound(f"{entrants} entrants in the draw, {self.lobby_count} in the room")
        if draw.get("digest") is None:
            return "closed"
        self.digest = read_hex(draw, "digest", (32,))
        self._check_order_of_times(draw)
        drawn_at = read_optional_moment(draw, "drawn_at")
        if drawn_at is None:
            self._check_entrants()
        if draw.get("secret") is None:
            if drawn_at is not None:
                raise MismatchFound("numbers were drawn, but the secret is not revealed")
            return "counted"
        self._check_seed(draw, statement)
        return "revealed" if drawn_at is None else "drawn"

    def _check_order_of_times(self, draw: Document) -> None:
        names = ("committed_at", "frozen_at", "digest_at", "revealed_at", "drawn_at", "numbered_at")
        known = [(name, moment) for name in names if (moment := read_optional_moment(draw, name)) is not None]
        for (before, one), (after, other) in pairwise(known):
            if one > other:
                raise MismatchFound(f"{after} is before {before}")

    def _check_entrants(self) -> None:
        leaves: list[bytes] = []
        for item in self._items("entrants", self.lobby_count):
            leaves.append(read_leaf(item, "an entrant"))
            self._report_progress(len(leaves), self.lobby_count)
        self._check_digest(leaves, "published entrants")

    def _check_digest(self, leaves: Sequence[bytes], which: str) -> None:
        leaves = sorted(leaves)
        for one, other in pairwise(leaves):
            if one == other:
                raise MismatchFound(f"entrant {one.hex()} is listed twice among the {which}")
        found = proofs.digest_of(leaves)
        if found != self.digest:
            raise MismatchFound(
                f"the digest over the {len(leaves)} {which} is {found.hex()}, but {self.digest.hex()} is published: "
                "an entrant was changed, added or removed afterwards"
            )
        if self.watch is not None:
            self.watched_is_entrant = self.watch.leaf in set(leaves)

    def _check_seed(self, draw: Document, statement: Document) -> None:
        secret = read_hex(draw, "secret", (32,))
        if proofs.sha256(secret).hex() != statement.get("secret_sha256"):
            raise MismatchFound("the revealed secret is not the one that was committed to")
        beacon = statement.get("beacon")
        promised = isinstance(beacon, Mapping) and beacon.get("source") not in (None, "", "none")
        value = b"" if draw.get("beacon_value") in (None, "") else read_hex(draw, "beacon_value")
        claimed = draw.get("is_operator_proof")
        if claimed is not bool(value):
            raise MismatchFound(
                "the draw claims an outside beacon, but no value of it is published"
                if claimed
                else "a beacon value was mixed in, but the draw does not say so"
            )
        if value and not promised:
            raise MismatchFound("a beacon value was mixed in without a commitment to a beacon")
        if promised and not value:
            revealed_at, reveal_by = read_moment(draw, "revealed_at"), read_moment(draw, "reveal_by")
            if revealed_at < reveal_by:
                raise MismatchFound("the secret was revealed without the promised beacon before its deadline")
            self.notes.append(
                f"the promised beacon {_describe_beacon(beacon)} did not come in time: the stated fallback applied"
            )
        if value and isinstance(beacon, Mapping):
            self._check_beacon(draw, beacon, value)
        self.seed = read_hex(draw, "seed", (32,))
        found = proofs.seed_of(secret, self.digest, value)
        if found != self.seed:
            raise MismatchFound(f"the seed is {found.hex()}, but {self.seed.hex()} is published")
        self.is_operator_proof = bool(value)

    def _check_beacon(self, draw: Document, beacon: Document, value: bytes) -> None:
        """Check that the value is the digest of a signature of the committed round by the committed key, and that the
        round came out after the entrants were fixed."""
        at, number = read_moment(beacon, "at"), read_integer(beacon, "round")
        if at <= read_moment(draw, "digest_at"):
            raise MismatchFound(f"the beacon's round came out at {beacon['at']}, before the entrants were fixed")
        chain = Chain(read_text(beacon, "scheme"), read_hex(beacon, "public_key"))
        signature = read_hex(draw, "beacon_signature")
        previous = b"" if draw.get("beacon_previous_signature") is None else read_hex(draw, "beacon_previous_signature")
        if beacon_chains.value_of(signature) != value:
            raise MismatchFound("the beacon value is not the SHA-256 of the published signature")
        if not beacon_chains.is_valid_signature(chain, number, signature, previous):
            raise MismatchFound(f"the signature is not that of {_describe_beacon(beacon)} by the committed key")
        known = beacon_chains.find_known(chain)
        if known is None:
            self.notes.append(
                f"the beacon's key {chain.public_key.hex()} is not one of drand's public networks: check whose it is, "
                "and when it publishes its rounds"
            )
        elif known.time_of(number) != at:
            raise MismatchFound(f"{known.name} publishes round {number} at {known.time_of(number)}, not at {at}")
        else:
            self.notes.append(f"the beacon value is signed by {known.name}, round {number}")

    def _check_drawn_numbers(self, numbered: Iterator[tuple[int, bytes]]) -> int:
        """Check that the numbers 1 to the number of entrants are in the only order that the seed gives."""
        leaves = [leaf for _, leaf in islice(numbered, self.lobby_count)]
        before: tuple[bytes, bytes] | None = None
        in_order = True
        for leaf in leaves:
            key = (proofs.draw_key(self.seed, leaf), leaf)
            if before is not None and key <= before:
                in_order = False
                break
            before = key
        # A changed set of entrants would look like a wrong order; the digest distinguishes the two.
        self._check_digest(leaves, "drawn leaves")
        if not in_order:
            drawn = sorted(leaves, key=lambda leaf: (proofs.draw_key(self.seed, leaf), leaf))
            number = next(index for index, leaf in enumerate(leaves) if leaf != drawn[index]) + 1
            raise MismatchFound(
                f"the seed draws leaf {drawn[number - 1].hex()}, but {leaves[number - 1].hex()} is published", number
            )
        return len(leaves)

    # --- first come ----------------------------------------------------------------------------------------------
    def _check_first_come(self, leaves: Iterator[tuple[int, bytes]]) -> None:
        """Check that every later number has one leaf, and that the chain over them ends in the room's chain head."""
        first, last = self.lobby_count + 1, self.next_number - 1
        chain = b""
        self._check_watched_chain(first, chain)
        seen: set[bytes] = set()
        for number, leaf in leaves:
            if leaf in seen:
                raise MismatchFound(f"leaf {leaf.hex()} has a lower number already", number)
            seen.add(leaf)
            chain = proofs.link(chain or proofs.genesis(self.event), number, leaf)
            self._check_watched_chain(number + 1, chain)
            self._check_earlier_chain(number + 1, chain)
        if chain != self.chain_head:
            where = f"the chain over numbers {first} to {last}" if last >= first else "a chain without any number"
            raise MismatchFound(
                f"{where} ends in {chain.hex() or 'nothing'}, but {self.chain_head.hex() or 'nothing'} is published: "
                "one of these numbers or the chain head was changed"
            )

    def _leaves(self, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """Yield the leaves of these numbers in one pass over the pages. Raises if one is missing."""
        if first > last:
            return
        page = read_object(self.document.get("places"), "places")
        number = first
        while True:
            if read_integer(page, "from") != number:
                raise MismatchFound(f"its page begins with number {page['from']}", number)
            leaves = read_list(page, "leaves")
            for given in leaves:
                if given is None:
                    raise MismatchFound("there is no entry", number)
                leaf = read_leaf(given, "the leaf", number)
                self._check_leaf(number, leaf)
                self._report_progress(number, last)
                yield number, leaf
                if number == last:
                    return
                number += 1
            if not leaves or page.get("next") is None:
                raise MismatchFound("no leaf is published", number)
            page = self._page("places", number - 1)

    def _check_leaf(self, number: int, leaf: bytes) -> None:
        if self.watch is not None and leaf == self.watch.leaf:
            self.watched_number = number
        known = self.earlier_leaves.get(number)
        if known is not None and known != leaf:
            raise MismatchFound(f"the leaf is {leaf.hex()}, but in the earlier copy it was {known.hex()}", number)

    # --- the earlier copy ----------------------------------------------------------------------------------------
    def _read_earlier(self) -> None:
        self.earlier_leaves: dict[int, bytes] = {}
        self.earlier_chain: tuple[int, bytes] | None = None
        self.earlier_lists: dict[str, list[Document]] = {"marked": [], "admissions": [], "acts": []}
        if self.earlier is None:
            return
        earlier = read_object(self.earlier, "the earlier copy")
        if earlier.get("event") != self.event:
            raise MismatchFound(f"the earlier copy is of event {earlier.get('event')!r}")
        room = read_object(earlier.get("room"), "the earlier copy's room")
        next_number = read_integer(room, "next_number", least=1)
        if next_number > self.next_number:
            raise MismatchFound(f"the next number was {next_number} in the earlier copy and is {self.next_number} now")
        self.earlier_chain = (next_number, read_hex(room, "chain_head", (0, 32)))
        page = read_object(earlier.get("places"), "`places` of the earlier copy")
        for number, given in enumerate(read_list(page, "leaves"), read_integer(page, "from")):
            if given is not None:
                self.earlier_leaves[number] = read_leaf(given, "the earlier copy's leaf", number)
        for part, known in self.earlier_lists.items():
            page = read_object(earlier.get(part), f"the earlier copy's {part}")
            known.extend(read_object(item, f"the earlier copy's {part}") for item in read_list(page, "items"))
            if part != "marked":
                # The copy may contain items that were recorded after its own time.
                del known[read_integer(room, f"{part}_count") :]
                if read_integer(self.room, f"{part}_count") < len(known):
                    raise MismatchFound(f"there were {len(known)} {part} in the earlier copy, and fewer now")
        was, now = earlier.get("draw"), self.document.get("draw")
        if isinstance(was, Mapping):
            for name in ("statement", "commitment", "digest", "secret", "beacon_value", "beacon_signature", "seed"):
                if was.get(name) is not None and (not isinstance(now, Mapping) or now.get(name) != was[name]):
                    raise MismatchFound(f"the draw's {name} is not what it was in the earlier copy")

    def _check_earlier_chain(self, next_number: int, chain: bytes) -> None:
        if self.earlier_chain is not None and self.earlier_chain[0] == next_number and chain != self.earlier_chain[1]:
            raise MismatchFound(
                f"the chain is {chain.hex()}, in the earlier copy it was {self.earlier_chain[1].hex()}", next_number - 1
            )

    def _check_watched_chain(self, next_number: int, chain: bytes) -> None:
        """Check that the chain before `next_number` is the one on the receipt. (In the lobby it is empty.)"""
        watch = self.watch
        if watch is None or watch.next_number != next_number or watch.chain_head == chain:
            return
        raise MismatchFound(
            f"the chain before it is {chain.hex() or 'empty'}, but on the receipt it was "
            f"{watch.chain_head.hex() or 'empty'}: a lower number was changed since",
            next_number,
        )

    def _check_watched(self, stage: str) -> None:
        watch = self.watch
        if watch is None:
            return
        if watch.next_number > self.next_number:
            raise MismatchFound(
                f"the receipt states {watch.next_number - 1} assigned numbers, but {self.next_number - 1} are published"
            )
        if watch.next_number <= self.lobby_count and watch.chain_head:
            raise MismatchFound(f"the receipt states a chain, but only the lobby's {self.lobby_count} are published")

    # --- marks, admissions, acts ---------------------------------------------------------------------------------
    def _check_marked(self) -> list[int]:
        numbers: list[int] = []
        for item in self._items("marked", None):
            number = read_integer(item, "number", least=1)
            if numbers and number <= numbers[-1]:
                raise MismatchFound("the marked numbers are not in order", number)
            if item.get("by") not in MARKS:
                raise MismatchFound(f"marked by {item.get('by')!r}, an unknown authority", number)
            numbers.append(number)
        standing = set(numbers)
        for item in self.earlier_lists["marked"]:
            if read_integer(item, "number", least=1) not in standing:
                raise MismatchFound("it was marked in the earlier copy", item["number"])
        # Entries marked after the time of the document may have later numbers.
        return [number for number in numbers if number < self.next_number]

    def _check_admissions(self) -> int:
        count = read_integer(self.room, "admissions_count")
        before: datetime | None = None
        for index, item in enumerate(self._items("admissions", count)):
            self._check_earlier_item("admissions", index, item)
            first, last = read_integer(item, "from", least=1), read_integer(item, "to", least=1)
            admitted = read_integer(item, "count", least=1)
            if item.get("reason") not in REASONS:
                raise MismatchFound(f"admitted for the unknown reason {item.get('reason')!r}", first)
            if not (first <= last < self.next_number and admitted <= last - first + 1):
                raise MismatchFound(f"{admitted} admitted from {first} to {last} of {self.next_number - 1}", first)
            if item["reason"] != "marked" and last > self.head:
                raise MismatchFound(f"admitted in turn, but the head is at {self.head}", last)
            at = read_moment(item, "at")
            if before is not None and at < before:
                raise MismatchFound("the admission is dated before the previous one", first)
            before = at
        return count

    def _check_acts(self) -> int:
        count = read_integer(self.room, "acts_count")
        for index, item in enumerate(self._items("acts", count)):
            self._check_earlier_item("acts", index, item)
            read_moment(item, "at")
            is_known = item.get("by") in ("system", "operator") and isinstance(item.get("what"), str)
            if not is_known or not isinstance(item.get("refused"), bool):
                raise MismatchFound(f"an act is invalid: {shorten(item)}")
        return count

    def _check_earlier_item(self, part: str, index: int, item: Document) -> None:
        known = self.earlier_lists[part]
        if index < len(known) and dict(known[index]) != dict(item):
            raise MismatchFound(
                f"{part}, number {index + 1}: {shorten(item)}, but in the earlier copy {shorten(known[index])}"
            )

    # --- pages ---------------------------------------------------------------------------------------------------
    def _items(self, part: str, count: int | None) -> Iterator[Any]:
        """Yield `count` items of a part over all its pages; all of them without `count`."""
        page, given = read_object(self.document.get(part), part), 0
        while True:
            for item in read_list(page, "items"):
                if given == count:
                    if part == "entrants":
                        raise MismatchFound(f"more than {count} entrants are published")
                    return
                given += 1
                yield read_object(item, part) if part != "entrants" else item
            after = page.get("next")
            if after is None:
                break
            if not isinstance(after, int) or isinstance(after, bool):
                raise MismatchFound(f"{part}: the next page is {after!r}")
            page = self._page(part, after)
            if isinstance(page.get("next"), int) and page["next"] <= after:
                raise MismatchFound(f"{part}: the pages go in circles")
        if count is not None and given < count:
            raise MismatchFound(f"{given} {part} of {count} are published")

    def _page(self, part: str, after: int) -> Document:
        page = read_object(self.fetch(part, after), f"a page of {part}")
        if page.get("event") != self.event:
            raise MismatchFound(f"a page of {part} is of event {page.get('event')!r}")
        return page

    def _report_progress(self, done: int, total: int) -> None:
        if self.progress is not None and (done % PROGRESS_EVERY == 0 or done == total):
            self.progress(done, total)


def _parse_statement(text: str) -> Document:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise MismatchFound("the statement is not JSON") from None
    statement = read_object(value, "the statement")
    if proofs.canonical(statement) != text.encode():
        raise MismatchFound("the statement is not in canonical form")
    return statement


def _describe_beacon(beacon: Any) -> str:
    return f"round {beacon.get('round')} of {beacon.get('source')}" if isinstance(beacon, Mapping) else "the beacon"
