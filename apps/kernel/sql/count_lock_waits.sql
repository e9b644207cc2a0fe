-- The number of sessions of this database that have waited over %(longer_than_ms)s ms for another session's lock.
SELECT count(*)
FROM pg_locks AS lock
JOIN pg_stat_activity AS session ON session.pid = lock.pid AND session.datname = current_database()
WHERE NOT lock.granted
  AND lock.waitstart <= clock_timestamp() - make_interval(secs => %(longer_than_ms)s / 1000.0)
