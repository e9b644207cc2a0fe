"""Times to pay in seconds instead of minutes, and a waiting room needs both its rate and its cap.

Until now a rate without a cap was stored, and left the room off. Such a pair is removed, with the lobby that cannot be
without a room; a draw by sign-up, which needs the lobby, gets the usual rate and cap instead.
"""

from django.db import migrations, models
from django.db.models import F, Q

USUAL_RATE_PER_SECOND, USUAL_ACTIVE_MAX = 50, 500


def complete_waiting_rooms(apps, schema_editor):
    on_sales = apps.get_model("events", "OnSale").objects
    half = Q(room_rate_per_second__isnull=True) ^ Q(room_active_max__isnull=True)
    drawn = on_sales.filter(half, presale_condition="sign_up")
    drawn.filter(room_rate_per_second__isnull=True).update(room_rate_per_second=USUAL_RATE_PER_SECOND)
    drawn.filter(room_active_max__isnull=True).update(room_active_max=USUAL_ACTIVE_MAX)
    on_sales.filter(half).update(room_rate_per_second=None, room_active_max=None, room_lobby_opens_at=None)


def count_in_seconds(apps, schema_editor):
    apps.get_model("events", "OnSale").objects.update(
        hold_seconds=F("hold_seconds") * 60, payment_seconds=F("payment_seconds") * 60
    )


def count_in_minutes(apps, schema_editor):
    apps.get_model("events", "OnSale").objects.update(
        hold_seconds=(F("hold_seconds") + 59) / 60, payment_seconds=(F("payment_seconds") + 59) / 60
    )


class Migration(migrations.Migration):
    dependencies = [("events", "0022_amounts_in_words")]

    operations = [
        migrations.RunPython(complete_waiting_rooms, migrations.RunPython.noop),
        migrations.RemoveConstraint("onsale", "on_sale_hold_minutes_sane"),
        migrations.RemoveConstraint("onsale", "on_sale_payment_minutes_sane"),
        migrations.RemoveConstraint("onsale", "on_sale_room_has_rate_and_cap"),
        migrations.RenameField("onsale", "hold_minutes", "hold_seconds"),
        migrations.RenameField("onsale", "payment_minutes", "payment_seconds"),
        migrations.AlterField(
            "onsale",
            "hold_seconds",
            models.PositiveIntegerField("time to pay", default=600, help_text="In seconds, from the hold on."),
        ),
        migrations.AlterField(
            "onsale",
            "payment_seconds",
            models.PositiveIntegerField(
                "time for a payment", default=180, help_text="In seconds: the longest time that a payment may take."
            ),
        ),
        migrations.AlterField(
            "onsale",
            "room_rate_per_second",
            models.PositiveIntegerField(
                "waiting room: rate",
                null=True,
                blank=True,
                help_text="Visitors admitted per second. A waiting room needs this and the cap; both empty: it is off.",
            ),
        ),
        migrations.AlterField(
            "onsale",
            "room_active_max",
            models.PositiveIntegerField(
                "waiting room: cap", null=True, blank=True, help_text="Visitors who may shop at the same time."
            ),
        ),
        migrations.RunPython(count_in_seconds, count_in_minutes),
        migrations.AddConstraint(
            "onsale",
            models.CheckConstraint(
                condition=Q(hold_seconds__gte=30, hold_seconds__lte=14_400),
                name="on_sale_hold_seconds_sane",
                violation_error_message="The time to pay is between 30 seconds and 4 hours.",
            ),
        ),
        migrations.AddConstraint(
            "onsale",
            models.CheckConstraint(
                condition=Q(payment_seconds__gte=30, payment_seconds__lte=3_600),
                name="on_sale_payment_seconds_sane",
                violation_error_message="The time for a payment is between 30 seconds and 1 hour.",
            ),
        ),
        migrations.AddConstraint(
            "onsale",
            models.CheckConstraint(
                condition=Q(room_rate_per_second__isnull=True, room_active_max__isnull=True)
                | Q(
                    room_rate_per_second__isnull=False,
                    room_active_max__isnull=False,
                    room_rate_per_second__gte=1,
                    room_active_max__gte=1,
                ),
                name="on_sale_room_has_rate_and_cap",
                violation_error_message="A waiting room needs both a rate and a cap, of at least 1.",
            ),
        ),
    ]
