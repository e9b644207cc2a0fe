"""Many codes at once, each another: for a mailing, a partner, a club."""

from collections.abc import Iterable
from typing import Any

from apps.orders.models import PromoCode
from ticketing.kernel import clock, code_words, transactions


def make_codes(count: int, prefix: str, category_ids: Iterable[int], **values: Any) -> list[PromoCode]:
    """So many new codes, all alike but for their words, committed; all or none."""
    chosen = list(category_ids)
    made: list[PromoCode] = []
    with transactions.write():
        now = clock.now()
        for words in code_words.new_codes(count, prefix):
            codes = PromoCode.objects.bulk_create(PromoCode(code=word, created_at=now, **values) for word in words)
            PromoCode.categories.through.objects.bulk_create(
                PromoCode.categories.through(promocode_id=code.pk, category_id=category_id)
                for code in codes
                for category_id in chosen
            )
            made += codes
    return made
