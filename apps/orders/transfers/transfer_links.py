"""The signed links to transfers, which go to the mailbox of the recipient."""

from uuid import UUID

from django.core.signing import BadSignature, Signer
from django.urls import reverse

from apps.orders.absolute_urls import absolute_url

_links = Signer(salt="transfer-link")


def transfer_path(transfer_id: UUID) -> str:
    """Return the path with its key. It is valid as long as the signing key."""
    path = reverse("orders:transfer_offer", args=[transfer_id])
    return f"{path}?key={_links.signature(str(transfer_id))}"


def transfer_link(transfer_id: UUID) -> str:
    return absolute_url(transfer_path(transfer_id))


def is_valid_key(transfer_id: UUID, key: str) -> bool:
    try:
        return _links.unsign(f"{transfer_id}{_links.sep}{key}") == str(transfer_id)
    except BadSignature:
        return False
