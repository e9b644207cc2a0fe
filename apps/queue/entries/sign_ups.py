"""Sign-up for the draw of a lobby: one entry per person, known by the account's confirmed mailbox.

The draw itself is that of every lobby, and its proof verifies in the same way: a person signs up by joining the lobby.
"""

from django.db import IntegrityError

from apps.accounts import facade as accounts
from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.http import problems
from apps.queue.errors import AlreadySignedUp
from apps.queue.models import SignUp


def sign_up(event: events.EventView, account_id: int, origin: str = "") -> bool:
    """Sign the account up for the event's draw if sign-up is open and its address is confirmed, and commit. Return
    whether it has signed up, now or before. Mails to it have the turns of this origin (`mail_caps.origin_of`).

    The entry follows in a transaction of its own; if that fails, joining again gives it. So an account keeps its
    sign-up when its address changes, and two accounts with one mailbox conflict on `sign_up_once_per_person`: the
    second waits for the first to commit, and is refused. Raises AlreadySignedUp, and TokenInvalid if the account was
    deleted meanwhile.
    """
    own = SignUp.objects.filter(event=event.id, account=account_id)
    if own.exists():
        return True
    address = accounts.confirmed_address(account_id)
    if not address:
        return False
    try:
        with transactions.write():
            now = clock.now()
            if not event.is_sign_up_open(now):
                return False
            person = SignUp.person_of(address)
            row = SignUp(event_id=event.id, account_id=account_id, person=person, signed_up_at=now, origin=origin)
            SignUp.objects.bulk_create([row], ignore_conflicts=True)
            if not own.exists():
                raise AlreadySignedUp
    except IntegrityError as error:
        raise problems.TokenInvalid("This account no longer exists.") from error
    return True
