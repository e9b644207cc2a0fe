-- Delete up to %(limit)s counts whose day began before this time. Counts that are being changed are skipped.
DELETE FROM kernel_mailcount
WHERE recipient IN (
    SELECT recipient
    FROM kernel_mailcount
    WHERE day_from < %(before)s
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
)
