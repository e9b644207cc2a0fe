"""Serializers of the proof and the receipt for the OpenAPI schema. docs/fairness.md explains the fields."""

from drf_spectacular.utils import PolymorphicProxySerializer
from rest_framework import serializers

LOBBY_STAGES = ["lobby", "drawn", "first come"]


class ProofRoom(serializers.Serializer):
    state = serializers.CharField()
    next_number = serializers.IntegerField()
    chain_head = serializers.CharField(help_text="Hex; empty before the first first-come number.")
    lobby_count = serializers.IntegerField()
    head = serializers.IntegerField()
    admissions_count = serializers.IntegerField()
    acts_count = serializers.IntegerField()


class ProofDraw(serializers.Serializer):
    statement = serializers.CharField(help_text="The committed text, in canonical JSON.")
    commitment = serializers.CharField(help_text="Hex: SHA-256 of the statement.")
    committed_at = serializers.DateTimeField()
    reveal_by = serializers.DateTimeField()
    frozen_at = serializers.DateTimeField(allow_null=True)
    entrants_count = serializers.IntegerField(allow_null=True)
    digest = serializers.CharField(allow_null=True)
    digest_at = serializers.DateTimeField(allow_null=True)
    secret = serializers.CharField(allow_null=True, help_text="Null until it is revealed.")
    beacon_value = serializers.CharField(allow_null=True, help_text="Hex: SHA-256 of the signature.")
    beacon_signature = serializers.CharField(allow_null=True, help_text="Hex: the round's BLS signature.")
    beacon_previous_signature = serializers.CharField(
        allow_null=True, help_text="Hex: the previous round's signature, in a chained scheme."
    )
    revealed_at = serializers.DateTimeField(allow_null=True)
    seed = serializers.CharField(allow_null=True)
    is_operator_proof = serializers.BooleanField(allow_null=True)
    drawn_at = serializers.DateTimeField(allow_null=True)
    numbered_at = serializers.DateTimeField(allow_null=True)


class ReceiptKey(serializers.Serializer):
    key_id = serializers.CharField()
    algorithm = serializers.CharField()
    public = serializers.CharField(help_text="Hex, 32 bytes.")
    first_used_at = serializers.DateTimeField()


class ReceiptKeys(serializers.Serializer):
    keys = ReceiptKey(many=True)


class ProofLeaves(serializers.Serializer):
    # `get_fields` adds `from`, which is a Python keyword.
    leaves = serializers.ListField(
        child=serializers.CharField(allow_null=True),
        help_text="Hex leaves of consecutive numbers, starting with `from`.",
    )
    next = serializers.IntegerField(allow_null=True)

    def get_fields(self) -> dict[str, serializers.Field]:
        return {"from": serializers.IntegerField(), **super().get_fields()}


class ProofEntrants(serializers.Serializer):
    items = serializers.ListField(child=serializers.CharField())
    next = serializers.IntegerField(allow_null=True)


class ProofList(serializers.Serializer):
    items = serializers.ListField(child=serializers.DictField())
    next = serializers.IntegerField(allow_null=True)


class Proof(serializers.Serializer):
    format = serializers.IntegerField()
    event = serializers.CharField()
    generated_at = serializers.DateTimeField()
    room = ProofRoom()
    draw = ProofDraw(allow_null=True)
    keys = ReceiptKey(many=True)
    places = ProofLeaves()
    entrants = ProofEntrants(allow_null=True)
    marked = ProofList()
    admissions = ProofList()
    acts = ProofList()


class ProofPage(serializers.Serializer):
    format = serializers.IntegerField()
    event = serializers.CharField()


class ProofLeavesPage(ProofPage, ProofLeaves):
    part = serializers.ChoiceField(choices=["places"])


class ProofListPage(ProofPage):
    part = serializers.ChoiceField(choices=["entrants", "marked", "admissions", "acts"])
    items = serializers.ListField(help_text="As `items` of that part in the whole document.")
    next = serializers.IntegerField(allow_null=True)


PROOF_OR_PAGE = PolymorphicProxySerializer(
    component_name="ProofOrPage",
    serializers=[Proof, ProofLeavesPage, ProofListPage],
    resource_type_field_name=None,
)
"""Without `part` and `after`, the response is the document; with either, one page of one part, with flat fields."""


class ReceiptAsOf(serializers.Serializer):
    next_number = serializers.IntegerField()
    chain_head = serializers.CharField()


class Receipt(serializers.Serializer):
    format = serializers.IntegerField()
    event = serializers.CharField()
    entry = serializers.UUIDField()
    nonce = serializers.CharField()
    leaf = serializers.CharField(help_text="SHA-256(entry, 16 bytes ‖ nonce), hex.")
    number = serializers.IntegerField(allow_null=True)
    stage = serializers.ChoiceField(choices=LOBBY_STAGES)
    commitment = serializers.CharField(allow_null=True)
    as_of = ReceiptAsOf()
    claim = serializers.CharField()
    issued_at = serializers.DateTimeField()
    key_id = serializers.CharField()
    signature = serializers.CharField(help_text="Hex: Ed25519 over the canonical form of all other fields.")
