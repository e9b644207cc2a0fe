"""A report's content as sections with facts and curves, the same for the page and the PDF."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apps.kernel.formatting import format_duration
from apps.orders.reports.charts import Chart, draw_curves
from apps.orders.reports.disclosure import PEOPLE_MIN

_REASONS = {
    "tick": "In turn",
    "empty line": "Without waiting, because no one was ahead",
    "operator": "By the organizer, in turn",
    "marked": "Ahead of their turn, and marked",
}
_HOLDS = {
    "made": "Holds made",
    "bought": "Bought",
    "canceled": "Released before payment",
    "expired": "Expired unpaid, and back on sale",
    "revived": "Bought although the hold had expired, because the payment was in time",
    "returned": "Returned after they were bought",
}
_ACTS = {
    "state": "Opened, paused, drained or switched off",
    "limits": "Rate, cap or times changed",
    "admit": "Visitors admitted by hand",
    "remove": "Visitors removed from the line",
    "let in": "Priority given",
    "vip link": "VIP links created or revoked",
    "screening": "Proof of work or review set",
    "review": "Reviews ended",
    "message": "Messages to the line",
    "draw": "Beacon values entered by hand",
    "blocked": "Seats or tickets blocked",
    "unblocked": "Seats or tickets put on sale",
    "resized": "Capacity changed",
    "repriced": "Prices changed",
    "moved": "Seats moved to another price",
    "repaired": "Repairs of the inventory",
    "compensated": "Compensations of an oversell",
    "guarded": "Sections restricted to access codes",
    "opened": "Sections opened to all buyers",
}
_NETWORKS = {
    "ipv4": "IPv4 networks",
    "ipv6": "IPv6 networks",
    "other": "exempt, local or unknown addresses",
    "unrecorded": "networks that are not recorded",
}
FEW = f"not shown: fewer than {PEOPLE_MIN} people"


@dataclass(frozen=True, slots=True)
class Section:
    key: str
    title: str
    facts: tuple[tuple[str, str], ...]
    note: str = ""
    chart: Chart | None = None


def describe_report(document: Mapping[str, Any]) -> list[Section]:
    """Return the sections of the report in order."""
    return [
        _people(document),
        _waits(document["waits"]),
        _admission(document["admission"]),
        _holds(document["holds"]),
        _stock(document),
        _shares(document["shares"]),
        _networks(document["shares"]["by_network"]),
        _acts(document["acts"]),
        _audit(document["audit"]),
        _proof(document["proof"]),
    ]


def _people(document: Mapping[str, Any]) -> Section:
    people, admission = document["people"], document["admission"]
    facts = [
        ("Joined the line", _count(people["joined"])),
        ("Of them in the lobby before the opening", _count(people["lobby"])),
        ("Of them with priority", _count(people["priority"])),
        ("Admitted", _count(people["admitted"])),
        ("Bought tickets", FEW if people["buyers"] is None else _count(people["buyers"])),
        *_by_account("Joined", people["joined_by_account"]),
    ]
    chart = _curves("Joined and admitted", admission, ("joined", "admitted"))
    return Section("people", "People", tuple(facts), "One entry in line is one account or one browser.", chart)


def _waits(waits: Mapping[str, Any]) -> Section:
    facts = [(f"{percent} % waited at most", _duration(waits[f"p{percent}_seconds"])) for percent in (50, 90, 99)]
    facts += _bounded("", waits["histogram"], "up_to_seconds", "people", _duration)
    note = "From joining, or from the opening for the lobby, until the latest admission."
    return Section("waits", "Waiting times", tuple(facts) if waits["counted"] else (), note)


def _admission(admission: Mapping[str, Any]) -> Section:
    facts = [("Admissions", _count(admission["admissions"]))]
    facts += [(_REASONS.get(reason, reason), _count(count)) for reason, count in admission["by_reason"].items()]
    note = "Visitors who did not come in time and were admitted again count twice."
    return Section("admission", "Admissions", tuple(facts), note)


def _holds(holds: Mapping[str, Any]) -> Section:
    facts = [
        (words, _reservations(holds[what]["reservations"], holds[what]["tickets"])) for what, words in _HOLDS.items()
    ]
    note = (
        "In reservations, and in tickets. A hold that is replaced by another selection is released. A returned ticket "
        "counts at once, its reservation once all its tickets are returned."
    )
    return Section("holds", "Holds", tuple(facts), note)


def _reservations(count: int | None, tickets: int) -> str:
    return f"{f'fewer than {PEOPLE_MIN}' if count is None else _count(count)} ({_tickets(tickets)})"


def _stock(document: Mapping[str, Any]) -> Section:
    stock, curve = document["stock"], document["stock_curve"]
    facts = [
        ("Capacity", f"{_count(stock['capacity'])} tickets"),
        ("Blocked at publication", f"{_count(stock['blocked'])} tickets"),
        ("Sold, without those returned", f"{_count(_sold(document['holds']))} tickets"),
    ]
    return Section("stock", "Stock", tuple(facts), "", _curves("Held and sold tickets", curve, ("held", "sold")))


def _sold(holds: Mapping[str, Any]) -> int:
    sold: int = holds["bought"]["tickets"] - holds["returned"]["tickets"]
    return sold


def _shares(shares: Mapping[str, Any]) -> Section:
    facts = [("Tickets bought", _count(shares["tickets"]))]
    for group in shares["largest_buyers"]:
        share = f"{group['tickets_permille'] / 10:g} % of the tickets"
        facts.append((f"Bought by the {group['buyers_permille'] / 10:g} % of buyers with the most", share))
    facts += _bounded("Buyers of ", shares["tickets_per_buyer"], "up_to_tickets", "buyers", _tickets)
    facts += _by_account("Bought", shares["buyers_by_account"])
    return Section("shares", "Who bought how much", tuple(facts), "A buyer is one account or one browser.")


def _networks(found: Mapping[str, Any] | str) -> Section:
    title = "From which networks"
    if isinstance(found, str):
        return Section("networks", title, (), "Networks were not recorded during this sale.")
    few = f"fewer than {PEOPLE_MIN}"
    facts = [("Networks that bought tickets", few if found["networks"] is None else _count(found["networks"]))]
    for share in found["largest"]:
        count = share["networks"]
        if share["networks_permille"] is not None:
            words = f"the largest {share['networks_permille'] / 10:g} % of the networks ({_count(count)})"
        else:
            words = "the largest network" if count == 1 else f"the {count} largest networks"
        facts.append((f"Bought from {words}", f"{share['tickets_permille'] / 10:g} % ({_buyers(share['buyers'])})"))
    if not found["largest"]:
        facts.append(("Shares of the largest networks", FEW))
    for group in found["kinds"]:
        words = ", or ".join(_NETWORKS[kind] for kind in group["kinds"])
        facts.append((f"Bought from {words}", f"{_tickets(group['tickets'])} ({_buyers(group['buyers'])})"))
    note = (
        "A network is an IPv4 /24 or an IPv6 /48, from which a buyer joined the line. Many people can share one: an "
        "office, a university, a mobile carrier. Percentages are of the tickets whose network is known. No address was "
        "stored with a join; the keyed digests that were counted are deleted at publication."
    )
    return Section("networks", title, tuple(facts), note)


def _acts(acts: Mapping[str, Any]) -> Section:
    facts = []
    for where, kinds in acts.items():
        place = "Waiting room" if where == "room" else "Stock"
        for result, counts in kinds.items():
            facts += [
                (f"{place}: {_ACTS.get(what, what)}{', refused' if result == 'refused' else ''}", _count(count))
                for what, count in counts.items()
            ]
    return Section("acts", "Acts of the organizer", tuple(facts), "" if facts else "There were none.")


def _audit(audit: Mapping[str, Any]) -> Section:
    facts = [
        (
            f"{check['invariant']}: {check['promise']}",
            "could not be checked" if not check["was_checked"] else _breaches(check["breaches"]),
        )
        for check in audit["checks"]
    ]
    runs = audit["runs_during_sale"]
    note = "Checked at publication. No audit of the system during the sale is recorded."
    if runs["kept"]:
        note = (
            f"Checked at publication. Of the system's {_count(runs['kept'])} recorded audits during the sale, "
            f"{_count(runs['with_breaches'])} found a breach."
        )
    return Section("audit", "Audit", tuple(facts), note)


def _breaches(count: int) -> str:
    return "kept" if not count else f"{_count(count)} {'breach' if count == 1 else 'breaches'}"


def _proof(proof: Mapping[str, Any]) -> Section:
    names = {
        "chain_head": "End of the chain of numbers",
        "commitment": "Commitment of the draw",
        "digest": "Fingerprint of the lobby's entrants",
        "seed": "Seed of the draw",
        "beacon_value": "Value of the outside beacon",
        "beacon_signature": "Signature of the beacon",
    }
    facts = [("Numbers in line", _count(proof["numbers"]))]
    facts += [(words, str(proof[name])) for name, words in names.items() if proof[name]]
    if not proof["is_verified"]:
        return Section("proof", "Order of the line", tuple(facts), f"Not verified: {proof['mismatch']}.")
    if not proof["is_operator_proof"]:
        claim = "Consistent, not operator-proof: no beacon outside the system took part."
    elif proof["beacon_network"]:
        claim = f"The draw used a value of {proof['beacon_network']}, whose signature is valid."
    else:
        claim = "The draw used a signed value of a beacon. Its key is in the public proof: check whose it is."
    note = f"Every number was recomputed from public data at publication, and matches. {claim}"
    return Section("proof", "Order of the line", tuple(facts), note)


def _curves(title: str, figures: Mapping[str, Any], names: Sequence[str]) -> Chart | None:
    series = [(name.capitalize(), figures[name]) for name in names if figures[name] is not None]
    return draw_curves(title, figures["points_seconds"], series)


def _by_account(verb: str, parts: Mapping[str, int] | None) -> list[tuple[str, str]]:
    if parts is None:
        return [(f"{verb} with an account, or as a guest", FEW)]
    return [(f"{verb} with an account", _count(parts["accounts"])), (f"{verb} as a guest", _count(parts["guests"]))]


def _bounded(
    before_each: str, groups: Sequence[Mapping[str, Any]], bound: str, people: str, words: Callable[[int], str]
) -> Iterable[tuple[str, str]]:
    """Yield a fact for each group of a distribution, with both of its bounds. The last one may have no upper bound."""
    lower: int | None = None
    for group in groups:
        upper = group[bound]
        above = "" if lower is None else f"more than {words(lower)}"
        below = "" if upper is None else f"up to {words(upper)}"
        text = before_each + (", ".join(filter(None, (above, below))) or "any number")
        yield text[:1].upper() + text[1:], _count(group[people])
        lower = upper


def _tickets(count: int) -> str:
    return f"{_count(count)} ticket{'' if count == 1 else 's'}"


def _buyers(count: int) -> str:
    return f"{_count(count)} buyer{'' if count == 1 else 's'}"


def _count(count: int) -> str:
    return f"{count:,}"


def _duration(seconds: int | None) -> str:
    return FEW if seconds is None else format_duration(seconds)
