-- The data of these sessions, without those that have ended.
SELECT session_key, session_data FROM django_session
WHERE session_key = ANY(%(keys)s::text[]) AND expire_date > %(now)s::timestamptz
