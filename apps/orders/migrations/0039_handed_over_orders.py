from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('orders', '0038_notices_by_hold'),
    ]

    operations = [
        migrations.AddField(
            model_name='order',
            name='is_handed_over',
            field=models.BooleanField(
                db_default=False,
                default=False,
                help_text='Staff have given it to another person: it has no account, and only its mailed links grant access.',
            ),
        ),
    ]
