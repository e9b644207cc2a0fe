from apps.queue.models.draws import Draw, DrawnPlace, ReceiptKey
from apps.queue.models.entries import QueueEntry
from apps.queue.models.links import VipLink
from apps.queue.models.record import AdmissionBatch, RateChange, RoomAct
from apps.queue.models.rooms import Leadership, WaitingRoom
from apps.queue.models.sign_ups import SignUp

__all__ = [
    "AdmissionBatch",
    "Draw",
    "DrawnPlace",
    "Leadership",
    "QueueEntry",
    "RateChange",
    "ReceiptKey",
    "RoomAct",
    "SignUp",
    "VipLink",
    "WaitingRoom",
]
