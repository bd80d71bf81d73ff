-- Adds an index by which a lease finds out whether a message of a key is held, parked or first. A message
-- without a key, and one that waits, is not in it.

CREATE INDEX onlyonce_outbox_key ON onlyonce_outbox (ordering_key) WHERE ordering_key <> '' AND state IN ('first', 'held', 'parked');

INSERT INTO onlyonce_schema (version) VALUES (9);
