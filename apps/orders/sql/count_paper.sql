-- Increment the counter of this series and return the number and the time, read under the counter's lock. The lock
-- lasts until the commit: the next document of the series waits for it. A new counter begins at 1.
INSERT INTO orders_invoicecounter AS counter (kind, series, year, last)
VALUES (%(kind)s, %(series)s, %(year)s, 1)
ON CONFLICT ON CONSTRAINT invoice_counter_once DO UPDATE
SET last = counter.last + 1
RETURNING counter.last, clock_timestamp()
