-- Count one more mail to this recipient, unless a cap is reached; return a row if it was counted. A period begins with its
-- first mail. Concurrent calls wait for each other's row, so the caps hold for all processes.
INSERT INTO kernel_mailcount AS known (recipient, hour_from, hour_count, day_from, day_count)
VALUES (%(recipient)s, clock_timestamp(), 1, clock_timestamp(), 1)
ON CONFLICT (recipient) DO UPDATE
SET hour_from = CASE WHEN known.hour_from <= excluded.hour_from - interval '1 hour' THEN excluded.hour_from
                     ELSE known.hour_from END,
    hour_count = CASE WHEN known.hour_from <= excluded.hour_from - interval '1 hour' THEN 1
                      ELSE known.hour_count + 1 END,
    day_from = CASE WHEN known.day_from <= excluded.day_from - interval '1 day' THEN excluded.day_from
                    ELSE known.day_from END,
    day_count = CASE WHEN known.day_from <= excluded.day_from - interval '1 day' THEN 1
                     ELSE known.day_count + 1 END
WHERE (%(hour_max)s::integer IS NULL OR known.hour_count < %(hour_max)s
       OR known.hour_from <= excluded.hour_from - interval '1 hour')
  AND (%(day_max)s::integer IS NULL OR known.day_count < %(day_max)s
       OR known.day_from <= excluded.day_from - interval '1 day')
RETURNING hour_count
