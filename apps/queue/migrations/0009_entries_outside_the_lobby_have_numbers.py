# The constraint accepted an entry outside the lobby without a number, because a check of NULL is not false. The plain
# index on the event is redundant: the unique constraint on event and number begins with the same column.

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('queue', '0008_signed_beacons_and_refusals'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='queueentry',
            name='queue_entry_has_number',
        ),
        migrations.AlterField(
            model_name='queueentry',
            name='event',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='queue_entries', to='events.event'),
        ),
        migrations.AddConstraint(
            model_name='queueentry',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('number__gte', 1), ('number__isnull', False)), models.Q(('in_lobby', True), ('number__isnull', True)), _connector='OR'), name='queue_entry_has_number'),
        ),
    ]
