-- Take back one counted mail to this recipient.
UPDATE kernel_mailcount
SET hour_count = greatest(hour_count - 1, 0), day_count = greatest(day_count - 1, 0)
WHERE recipient = %(recipient)s
