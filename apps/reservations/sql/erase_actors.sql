-- Replace the buyer in the ledger of these reservations. The ledger's trigger allows no other change.
UPDATE reservations_reservationtransition AS transition
SET who = given.buyer
FROM unnest(%(reservation_ids)s::uuid[], %(buyers)s::text[]) AS given (reservation_id, buyer)
WHERE transition.reservation_id = given.reservation_id AND transition.who SIMILAR TO '(visitor|account):%%'
