-- Return the seconds until the recipient's reached caps allow another mail.
SELECT extract(epoch FROM greatest(
    CASE WHEN hour_count >= %(hour_max)s::integer THEN hour_from + interval '1 hour' END,
    CASE WHEN day_count >= %(day_max)s::integer THEN day_from + interval '1 day' END,
    clock_timestamp()
) - clock_timestamp())
FROM kernel_mailcount
WHERE recipient = %(recipient)s
