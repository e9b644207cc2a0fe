-- Records an admission: the count, the numbers, and the cap at that time.
INSERT INTO queue_admissionbatch
    (event_id, at, reason, from_number, to_number, count, active_count, active_max, epoch)
VALUES
    (%(event_id)s, %(at)s, %(reason)s, %(from_number)s, %(to_number)s, %(count)s, %(active_count)s, %(active_max)s,
     %(epoch)s)
