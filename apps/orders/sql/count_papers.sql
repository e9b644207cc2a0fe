-- Add %(count)s to the counter of this series, and return the last number and the time, read under the counter's lock. The
-- lock lasts until the commit: the next document of the series waits for it. A new counter begins at 1.
INSERT INTO orders_invoicecounter AS counter (kind, series, year, last)
VALUES (%(kind)s, %(series)s, %(year)s, %(count)s)
ON CONFLICT ON CONSTRAINT invoice_counter_once DO UPDATE
SET last = counter.last + %(count)s
RETURNING counter.last, clock_timestamp()
