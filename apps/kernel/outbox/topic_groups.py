"""Groups of topics of the outbox: which processes deliver which topics."""

from enum import Enum


class TopicGroup(Enum):
    """Topics whose messages the same processes deliver."""

    SALES = "sales"
    """Charges, messages of providers, and everything else that is short. Delivered by `worker`."""
    MAIL = "mail"
    """Mails and the PDFs in them. Delivered by `mailer`, at a lower priority, or also by `worker`
    (`MAIL_IN_WORKER`)."""


ALL_GROUPS = frozenset(TopicGroup)
