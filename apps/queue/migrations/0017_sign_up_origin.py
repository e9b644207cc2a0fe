from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("queue", "0016_sign_up_reminders")]

    operations = [
        migrations.AddField(
            model_name="signup",
            name="origin",
            field=models.CharField(
                blank=True,
                default="",
                help_text="Keyed digest of the network that signed up, for turns of mails; blank once the last was scheduled.",
                max_length=16,
            ),
            preserve_default=False,
        ),
    ]
