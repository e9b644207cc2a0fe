from typing import ClassVar

from django.db import migrations


class Migration(migrations.Migration):
    dependencies: ClassVar = [("orders", "0033_changes_of_pages")]

    operations: ClassVar = [
        migrations.DeleteModel(name="SandboxRefund"),
        migrations.DeleteModel(name="SandboxCharge"),
    ]
