"""The hold written idiomatically with Django, REST framework and the ORM: a serializer, a transaction,
`select_for_update`, `bulk_create`, `F()`. In its best form: no middleware, no authentication, persistent connections,
no idempotency, no admission, no ledger, and its own tables as migrations would create them. Served by the site's WSGI
server.
"""
