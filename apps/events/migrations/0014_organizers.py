import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("events", "0013_publishes_report"),
    ]

    operations = [
        migrations.CreateModel(
            name="Organizer",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("slug", models.SlugField(max_length=80, unique=True)),
                ("name", models.CharField(max_length=200, unique=True)),
                (
                    "contact_email",
                    models.EmailField(
                        blank=True,
                        help_text="For buyers and for the site's operator.",
                        max_length=254,
                        verbose_name="contact email",
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={"ordering": ["name"]},
        ),
        migrations.CreateModel(
            name="Membership",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "role",
                    models.CharField(
                        choices=[
                            ("organizer", "organizer"),
                            ("box_office", "box office"),
                            ("door", "door"),
                            ("finance", "finance"),
                            ("read_only", "read-only"),
                        ],
                        max_length=12,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "organizer",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="memberships", to="events.organizer"
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="memberships",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={"ordering": ["organizer", "user"]},
        ),
        migrations.AddConstraint(
            model_name="membership",
            constraint=models.UniqueConstraint(fields=("organizer", "user"), name="membership_once"),
        ),
        migrations.AddConstraint(
            model_name="membership",
            constraint=models.CheckConstraint(
                condition=models.Q(("role__in", ["organizer", "box_office", "door", "finance", "read_only"])),
                name="membership_has_role",
            ),
        ),
        migrations.AddField(
            model_name="event",
            name="organizer",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="events",
                to="events.organizer",
            ),
        ),
        migrations.AddField(
            model_name="seatingplan",
            name="organizer",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="plans",
                to="events.organizer",
            ),
        ),
        migrations.RemoveConstraint(model_name="seatingplan", name="seating_plan_once_per_venue"),
        migrations.AddConstraint(
            model_name="seatingplan",
            constraint=models.UniqueConstraint(
                fields=("organizer", "venue", "digest"), name="seating_plan_once_per_venue"
            ),
        ),
    ]
