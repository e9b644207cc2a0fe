-- Records an operation with its operator and reason, and a refused one with why it was refused.
INSERT INTO queue_roomact (event_id, at, who, what, detail, why, refusal)
VALUES (%(event_id)s, %(at)s, %(who)s, %(what)s, %(detail)s, %(why)s, %(refusal)s)
