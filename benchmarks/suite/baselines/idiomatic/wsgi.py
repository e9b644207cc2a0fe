import os

from django.core.wsgi import get_wsgi_application

os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.suite.baselines.idiomatic.settings"

application = get_wsgi_application()
