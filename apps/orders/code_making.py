"""Many codes at once, each another: for a mailing, a partner, a club."""

from collections.abc import Iterable, Iterator
from typing import Any

from apps.orders.code_words import new_code
from apps.orders.models import PromoCode
from ticketing.kernel import clock, transactions

COUNT_MAX = 20_000
_BATCH = 1_000


def make_codes(count: int, prefix: str, category_ids: Iterable[int], **values: Any) -> list[PromoCode]:
    """So many new codes, all alike but for their words, committed; all or none."""
    assert 1 <= count <= COUNT_MAX
    chosen = list(category_ids)
    made: list[PromoCode] = []
    with transactions.write():
        now = clock.now()
        for words in _pieces(_new_words(count, prefix)):
            codes = PromoCode.objects.bulk_create(PromoCode(code=word, created_at=now, **values) for word in words)
            PromoCode.categories.through.objects.bulk_create(
                PromoCode.categories.through(promocode_id=code.pk, category_id=category_id)
                for code in codes
                for category_id in chosen
            )
            made += codes
    return made


def _new_words(count: int, prefix: str) -> list[str]:
    words: set[str] = set()
    while len(words) < count:
        words.add(new_code(prefix))
    return sorted(words)


def _pieces(words: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(words), _BATCH):
        yield words[start : start + _BATCH]
