-- What proves sessions and tokens of these accounts, without those that are not active.
SELECT id, password, is_active, date_joined, token_version FROM accounts_user
WHERE id = ANY(%(ids)s::bigint[]) AND is_active
