-- Records the decisions of people about parked messages. Rows are only ever added.

CREATE TABLE onlyonce_outbox_audit (
  seq          INTEGER PRIMARY KEY AUTOINCREMENT, -- the order in which they were decided
  decided_at   INTEGER NOT NULL,
  action       TEXT    NOT NULL,                  -- requeue, discard
  actor        TEXT    NOT NULL,
  reason       TEXT    NOT NULL,
  message_seq  INTEGER NOT NULL,                  -- the columns of onlyonce_outbox as they were, from here on
  id           TEXT    NOT NULL,
  topic        TEXT    NOT NULL,
  ordering_key TEXT    NOT NULL,
  tenant       TEXT    NOT NULL,
  attempts     INTEGER NOT NULL,
  error        TEXT
) STRICT;

CREATE TRIGGER onlyonce_outbox_audit_no_update BEFORE UPDATE ON onlyonce_outbox_audit
BEGIN SELECT RAISE(ABORT, 'rows of onlyonce_outbox_audit are never changed'); END;

CREATE TRIGGER onlyonce_outbox_audit_no_delete BEFORE DELETE ON onlyonce_outbox_audit
BEGIN SELECT RAISE(ABORT, 'rows of onlyonce_outbox_audit are never deleted'); END;

-- REPLACE deletes the row that is in its way without a trigger.
CREATE TRIGGER onlyonce_outbox_audit_no_replace BEFORE INSERT ON onlyonce_outbox_audit
WHEN EXISTS (SELECT 1 FROM onlyonce_outbox_audit WHERE seq = NEW.seq)
BEGIN SELECT RAISE(ABORT, 'rows of onlyonce_outbox_audit are never replaced'); END;

INSERT INTO onlyonce_schema (version) VALUES (7);
