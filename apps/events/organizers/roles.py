"""The permissions of each role at an organizer, and those that only site-wide staff have.

Every permission of the apps events, queue, reservations, orders, scheduler and feeds is in exactly one of the two
tables; a test compares them with the models. The table in docs/operations/staff.md lists the same tasks. All
permissions of other apps are site-wide.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from apps.events.models.organizers import Role

CONFINED_APPS = ("events", "queue", "reservations", "orders", "scheduler", "feeds")
_O, _B, _D, _F, _R = Role.ORGANIZER, Role.BOX_OFFICE, Role.DOOR, Role.FINANCE, Role.READ_ONLY
_ALL = frozenset(Role)


@dataclass(frozen=True, slots=True)
class Task:
    """Something that members do, with the permissions that it takes and the roles that have them."""

    name: str
    permissions: tuple[str, ...]
    roles: frozenset[Role]


def _task(name: str, permissions: str, *roles: Role) -> Task:
    return Task(name, tuple(permissions.split()), frozenset(roles) or _ALL)


TASKS = (
    _task(
        "See the organizer, its events with sections and prices, and venues",
        "events.view_organizer events.view_event events.view_onsale events.view_category events.view_section "
        "events.view_venue events.view_eventchange",
    ),
    _task(
        "Change the organizer and its legal pages; change and end memberships",
        "events.change_organizer events.view_legalpage "
        "events.view_membership events.change_membership events.delete_membership",
        _O,
    ),
    _task(
        "Create, change, publish and delete events; add venues and seating plans",
        "events.add_event events.change_event events.delete_event events.add_venue events.add_seatingplan "
        "events.delete_seatingplan",
        _O,
    ),
    _task("See seating plans and seats", "events.view_seatingplan events.view_seat", _O, _B, _R),
    _task("See the demand for events: views, referrers, searches", "events.view_viewminute", _O, _B, _F, _R),
    _task("See announcements", "events.view_announcementversion events.view_announcementarchive"),
    _task(
        "Post, correct and retract announcements",
        "events.add_announcementversion events.change_announcementversion",
        _O,
        _B,
    ),
    _task(
        "See waiting rooms and their log",
        "queue.view_waitingroom queue.view_admissionbatch queue.view_roomact queue.view_ratechange",
        _O,
        _B,
        _R,
    ),
    _task("Operate waiting rooms", "queue.change_waitingroom queue.change_queueentry", _O),
    _task("See queue entries and VIP links", "queue.view_queueentry queue.view_viplink", _O, _B),
    _task("Create and revoke VIP links, and see their addresses", "queue.add_viplink queue.change_viplink", _O),
    _task(
        "See stock and its changes",
        "reservations.view_seatinventory reservations.view_generaladmissioninventory reservations.view_inventorychange",
        _O,
        _B,
        _F,
        _R,
    ),
    _task(
        "Block and release seats and tickets, resize general admission",
        "reservations.change_seatinventory reservations.change_generaladmissioninventory",
        _O,
        _B,
    ),
    _task("Change prices and move seats between categories", "events.change_category", _O),
    _task(
        "See reservations, their ledger and purchase caps",
        "reservations.view_reservation reservations.view_reservationline reservations.view_reservationtransition "
        "reservations.view_purchasecap",
        _O,
        _B,
    ),
    _task("Release and cancel reservations", "reservations.change_reservation", _O, _B),
    _task("See access codes", "reservations.view_accesscode", _O, _B),
    _task(
        "Manage access codes, and the sections that need one",
        "reservations.add_accesscode reservations.change_accesscode reservations.delete_accesscode",
        _O,
    ),
    _task(
        "See orders, payments and refunds",
        "orders.view_order orders.view_orderline orders.view_payment orders.view_refund",
        _O,
        _B,
        _F,
        _R,
    ),
    _task(
        "Return, refund and cancel orders; replace codes; resend tickets; correct buyers",
        "orders.change_order",
        _O,
        _B,
        _F,
    ),
    _task("See tickets and their transfers", "orders.view_ticket orders.view_tickettransfer", _O, _B),
    _task("Replace codes of single tickets", "orders.change_ticket", _O, _B),
    _task("See invoices", "orders.view_invoice", _O, _B, _F),
    _task(
        "See return and transfer policies, and event cancellations",
        "orders.view_returnpolicy orders.view_transferpolicy orders.view_eventcancellation "
        "orders.view_cancellationfailure",
        _O,
        _B,
        _F,
        _R,
    ),
    _task(
        "Set return and transfer policies",
        "orders.add_returnpolicy orders.change_returnpolicy orders.delete_returnpolicy "
        "orders.add_transferpolicy orders.change_transferpolicy orders.delete_transferpolicy",
        _O,
        _F,
    ),
    _task("Cancel an event and refund all its orders", "orders.add_eventcancellation", _O),
    _task(
        "See and settle differences with payment providers",
        "orders.view_paymentdifference orders.change_paymentdifference",
        _O,
        _F,
    ),
    _task("See promo codes and their uses", "orders.view_promocode orders.view_codeuse", _O, _B, _F),
    _task("Manage promo codes", "orders.add_promocode orders.change_promocode orders.delete_promocode", _O),
    _task("See published reports of sales", "orders.view_reportversion", _O, _B, _F, _R),
    _task("Check tickets in at the doors", "orders.check_in", _O, _B, _D),
    _task("See the log of scans", "orders.view_ticketscan", _O, _B, _D, _R),
    _task(
        "Create and revoke door links",
        "orders.view_doorlink orders.add_doorlink orders.change_doorlink",
        _O,
        _B,
    ),
    _task(
        "See scheduled tasks and their runs",
        "scheduler.view_scheduledtask scheduler.view_taskrun",
        _O,
        _B,
        _F,
        _R,
    ),
    _task(
        "Schedule, change and cancel tasks, of what the role may do itself; run failed ones again",
        "scheduler.add_scheduledtask scheduler.change_scheduledtask",
        _O,
        _B,
        _F,
    ),
    _task(
        "Manage webhooks, feeds and feed keys; replay deliveries",
        "orders.view_webhookendpoint orders.add_webhookendpoint orders.change_webhookendpoint "
        "orders.view_webhookdelivery orders.change_webhookdelivery "
        "orders.view_feedkey orders.add_feedkey orders.change_feedkey "
        "feeds.view_feed feeds.change_feed",
        _O,
    ),
)  # fmt: skip

# By model: what no role may do, because services write the rows, or because they concern all organizers.
_SITE_WIDE: Mapping[str, str] = {
    "events.announcementarchive": "add change delete",
    "events.legalpage": "add change delete",
    "events.announcementfeed": "add change delete view",
    "events.announcementversion": "delete",
    "events.category": "add delete",
    # A member becomes staff: an organizer could make any account staff, and find out which addresses have accounts.
    "events.membership": "add",
    "events.onsale": "add change delete",
    "events.eventchange": "add change delete",
    "events.organizer": "add delete",
    "events.seat": "add change delete",
    "events.seatingplan": "change",
    "events.archivedsearch": "add change delete view",
    "events.recentsearch": "add change delete view",
    "events.searchhistory": "add change delete view",
    "events.searchchange": "add change delete view",
    "events.searchdocument": "add change delete view",
    "events.searchposting": "add change delete view",
    "events.searchstate": "add change delete view",
    "events.searchterm": "add change delete view",
    "events.section": "add change delete",
    "events.synonym": "add change delete view",
    "events.missedsearch": "add change delete view",
    "events.venue": "change delete",
    "events.viewbatch": "add change delete view",
    "events.viewcursor": "add change delete view",
    "events.viewday": "add change delete view",
    "events.viewdisplay": "add change delete view",
    "events.viewkey": "add change delete view",
    "events.viewlog": "add change delete view",
    "events.viewminute": "add change delete",
    "events.viewreferrer": "add change delete view",
    "events.viewrule": "add change delete view",
    "events.viewruleset": "add change delete view",
    "events.viewshard": "add change delete view",
    "events.viewtrend": "add change delete view",
    "orders.changedorder": "add change delete view",
    "queue.admissionbatch": "add change delete",
    "queue.draw": "add change delete view",
    "queue.drawnplace": "add change delete view",
    "queue.leadership": "add change delete view",
    "queue.queueentry": "add delete",
    "queue.ratechange": "add change delete",
    "queue.receiptkey": "add change delete view",
    "queue.roomact": "add change delete",
    "queue.signup": "add change delete view",
    "queue.viplink": "delete",
    "queue.waitingroom": "add delete",
    "reservations.availabilityframe": "add change delete view",
    "reservations.cleanuplog": "add change delete view",
    "reservations.generaladmissioninventory": "add delete",
    "reservations.inventorychange": "add change delete",
    "reservations.purchasecap": "add change delete",
    "reservations.reservation": "add delete",
    "reservations.reservationline": "add change delete",
    "reservations.reservationtransition": "add change delete",
    "reservations.seatinventory": "add delete",
    "reservations.toldpage": "add change delete view",
    "feeds.feed": "add delete",
    "feeds.message": "add change delete view",
    "scheduler.scheduledtask": "delete",
    "scheduler.taskfile": "add change delete view",
    "scheduler.taskrun": "add change delete",
    "orders.cancellationfailure": "add change delete",
    "orders.codeuse": "add change delete",
    "orders.comparedday": "add change delete view",
    "orders.doorlink": "delete",
    "orders.eventcancellation": "change delete",
    "orders.feedkey": "delete",
    "orders.feedmessage": "add change delete view",
    "orders.invoice": "add change delete",
    "orders.invoicecounter": "add change delete view",
    "orders.networktally": "add change delete view",
    "orders.order": "add delete",
    "orders.orderadjustment": "add change delete view",
    "orders.orderhistoryentry": "add change delete view",
    "orders.orderline": "add change delete",
    "orders.organizermessage": "add change delete view",
    "orders.payment": "add change delete",
    "orders.paymentdifference": "add delete",
    "orders.providermessage": "add change delete view",
    "orders.providerstanding": "add change delete view",
    "orders.refund": "add change delete",
    "orders.reminder": "add change delete view",
    "orders.reportversion": "add change delete",
    "orders.salesminute": "add change delete view",
    "orders.salestally": "add change delete view",
    "orders.schedulemail": "add change delete view",
    "orders.schedulenotice": "add change delete view",
    "orders.ticket": "add delete",
    "orders.ticketscan": "add change delete",
    "orders.tickettransfer": "add change delete",
    "orders.webhookdelivery": "add delete",
    "orders.webhookendpoint": "delete",
}

ROLE_PERMISSIONS: Mapping[Role, frozenset[str]] = {
    role: frozenset(permission for task in TASKS if role in task.roles for permission in task.permissions)
    for role in Role
}
SITE_WIDE = frozenset(
    f"{model.partition('.')[0]}.{verb}_{model.partition('.')[2]}"
    for model, verbs in _SITE_WIDE.items()
    for verb in verbs.split()
)
