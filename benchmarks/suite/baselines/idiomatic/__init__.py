"""The hold as one writes it with Django, its REST framework and its ORM: a serializer, a transaction,
`select_for_update`, `bulk_create`, `F()`. In its best form: no middleware, no authentication, persistent connections,
no idempotency, no admission, no ledger; tables of its own, as its migrations would make them. Served by the site's own
WSGI server.
"""
