-- Records an operation with its operator and reason.
INSERT INTO queue_roomact (event_id, at, who, what, detail, why)
VALUES (%(event_id)s, %(at)s, %(who)s, %(what)s, %(detail)s, %(why)s)
