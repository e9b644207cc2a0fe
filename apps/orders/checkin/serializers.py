"""The door as the API says it. These describe; what a scan may say is decided by `scan_parser.read_scan`."""

from rest_framework import serializers

from apps.orders.models import TicketScan


class ScanSerializer(serializers.Serializer):
    scan_id = serializers.CharField(
        min_length=8, max_length=64, help_text="Made by the device; sent again, it is the same scan."
    )
    code = serializers.CharField(required=False, help_text="As scanned or typed; this or `undo`.")
    undo = serializers.CharField(required=False, help_text="The scan_id of the check-in to take back.")
    door = serializers.CharField(required=False, max_length=60)


class ScannedTicketSerializer(serializers.Serializer):
    label = serializers.CharField()  # type: ignore[assignment]  # The stubs take it for Field's own label.
    section = serializers.CharField()
    row = serializers.CharField()
    number = serializers.CharField()
    category = serializers.CharField()
    holder = serializers.CharField()


class OtherEventSerializer(serializers.Serializer):
    event_id = serializers.SlugField()
    name = serializers.CharField()
    starts_at = serializers.DateTimeField()


class ScanAnswerSerializer(serializers.Serializer):
    scan_id = serializers.CharField()
    outcome = serializers.ChoiceField(choices=TicketScan.Outcome.choices)
    say = serializers.CharField(help_text="What to do, in a few large words.")
    message = serializers.CharField(help_text="Why, for whoever stands at the door.")
    at = serializers.DateTimeField()
    ticket = ScannedTicketSerializer(allow_null=True)
    since = serializers.DateTimeField(allow_null=True, help_text="Already in since then.")
    since_door = serializers.CharField()
    event = OtherEventSerializer(allow_null=True, help_text="The ticket's own, where it is another than the door's.")


class BatchSerializer(serializers.Serializer):
    scans = ScanSerializer(many=True, help_text="At most 100, decided in order.")


class ProblemDocumentSerializer(serializers.Serializer):
    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()


class BatchAnswerSerializer(serializers.Serializer):
    scan_id = serializers.CharField(help_text="Empty where the scan had none that can be read.")
    answer = ScanAnswerSerializer(allow_null=True)
    problem = ProblemDocumentSerializer(allow_null=True, help_text="Why it could not be decided.")


class BatchAnswersSerializer(serializers.Serializer):
    answers = BatchAnswerSerializer(many=True)


class SectionCountSerializer(serializers.Serializer):
    section = serializers.CharField()
    expected = serializers.IntegerField(help_text="Valid tickets.")
    entered = serializers.IntegerField()


class CountsSerializer(serializers.Serializer):
    expected = serializers.IntegerField()
    entered = serializers.IntegerField()
    sections = SectionCountSerializer(many=True)
