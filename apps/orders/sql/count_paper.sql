-- The next number of these papers, and a moment under the lock of its counter, which lasts to the commit: whoever writes
-- the next paper waits here. A new counter begins at 1.
INSERT INTO orders_invoicecounter AS counter (kind, series, year, last)
VALUES (%(kind)s, %(series)s, %(year)s, 1)
ON CONFLICT ON CONSTRAINT invoice_counter_once DO UPDATE
SET last = counter.last + 1
RETURNING counter.last, clock_timestamp()
