-- How many sessions of this database have waited longer than %(longer_than_ms)s ms for a lock that another one has.
SELECT count(*)
FROM pg_locks AS lock
JOIN pg_stat_activity AS session ON session.pid = lock.pid AND session.datname = current_database()
WHERE NOT lock.granted
  AND lock.waitstart <= clock_timestamp() - make_interval(secs => %(longer_than_ms)s / 1000.0)
