"""The rules by which a view counts. Operators edit them as rows of ViewRule; each change makes a new ViewRuleSet, and a
logged view is judged by the set under which it was logged. Processes read the newest set every 60 seconds."""

import re
from dataclasses import dataclass
from functools import cached_property

from apps.events.interest.default_bots import DEFAULT_BOTS
from apps.events.models import ViewRule, ViewRuleSet
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.fastpath.cache import RefreshingCache

MIN_SECONDS, REPEAT_MINUTES, ADDRESS_MAX = 10, 5, 10
"""The defaults: at least 10 s on the page, not again within 5 minutes, at most 10 in a minute of the clock from one
address."""
REPEAT_MINUTES_MAX = 60
ADDRESS_SECONDS = 60
USER_AGENT_CHARACTERS = 512
READ_SECONDS = 60.0
"""How often processes read the rules."""
NUMBERS = {
    ViewRule.Kind.MIN_SECONDS: (1, 600),
    ViewRule.Kind.REPEAT_MINUTES: (1, REPEAT_MINUTES_MAX),
    ViewRule.Kind.ADDRESS_MAX: (1, 10_000),
}
"""The range of each rule that has a number."""
_DEFAULTS = (
    ViewRule(kind=ViewRule.Kind.MIN_SECONDS, number=MIN_SECONDS),
    ViewRule(kind=ViewRule.Kind.REPEAT_MINUTES, number=REPEAT_MINUTES),
    ViewRule(kind=ViewRule.Kind.ADDRESS_MAX, number=ADDRESS_MAX),
    ViewRule(kind=ViewRule.Kind.OWN_STAFF),
    ViewRule(kind=ViewRule.Kind.BOTS, words="\n".join(DEFAULT_BOTS)),
)


@dataclass(frozen=True)
class Rules:
    """The rules in force, as far as they are applied when a view arrives."""

    id: int
    min_seconds: int
    bots: tuple[str, ...]
    """Lower case; empty: no rule."""

    @cached_property
    def _bot(self) -> re.Pattern[str] | None:
        return re.compile("|".join(map(re.escape, self.bots))) if self.bots else None

    def is_bot(self, user_agent: str) -> bool:
        """Return whether the user agent is on the list. A request without one is a program too."""
        # Its first characters only, because a header may be very long.
        name = user_agent[:USER_AGENT_CHARACTERS].lower()
        return self._bot is not None and (not name or self._bot.search(name) is not None)


def _read_min_seconds() -> int:
    found = ViewRuleSet.objects.order_by("-pk").values_list("min_seconds", flat=True).first()
    return MIN_SECONDS if found is None else found


min_seconds: RefreshingCache[None, int] = RefreshingCache(
    lambda _: _read_min_seconds(), fresh_seconds=READ_SECONDS, stale_seconds=0.0, most=1
)
"""After how many seconds on the page a view counts, as it was a minute ago, for pages."""


def read_rules() -> Rules:
    """Return the newest rules. The first call of a deployment writes the defaults."""
    row = ViewRuleSet.objects.order_by("-pk").first()
    if row is None:
        with transactions.write():
            ViewRule.objects.bulk_create(_DEFAULTS, ignore_conflicts=True)
            row = store_set()
    return Rules(row.pk, row.min_seconds, tuple(row.bots.splitlines()))


def store_set() -> ViewRuleSet:
    """Store the present rules as a new set, from which views are judged, and return it. Joins the caller's transaction,
    in which the rules have changed."""
    transactions.require_transaction()
    # In the order of their keys: of two changes at once, the second set has both.
    rules = {rule.kind: rule for rule in ViewRule.objects.select_for_update(no_key=True).order_by("kind") if rule.is_on}

    def number(kind: ViewRule.Kind) -> int | None:
        return rules[kind].number if kind in rules else None

    bots = rules[ViewRule.Kind.BOTS].words if ViewRule.Kind.BOTS in rules else ""
    return ViewRuleSet.objects.create(
        since=clock.now(),
        min_seconds=number(ViewRule.Kind.MIN_SECONDS) or 0,
        repeat_seconds=60 * (number(ViewRule.Kind.REPEAT_MINUTES) or 0),
        address_max=number(ViewRule.Kind.ADDRESS_MAX),
        excludes_staff=ViewRule.Kind.OWN_STAFF in rules,
        bots="\n".join(dict.fromkeys(line.strip().lower() for line in bots.splitlines() if line.strip())),
    )
