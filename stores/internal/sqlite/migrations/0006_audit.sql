-- Records the decisions of people about records. Rows are only ever added.

CREATE TABLE onlyonce_audit (
  seq           INTEGER PRIMARY KEY AUTOINCREMENT, -- the order in which they were decided
  decided_at    INTEGER NOT NULL,
  record_id     BLOB    NOT NULL,
  tenant        TEXT    NOT NULL,
  operation     TEXT    NOT NULL,
  idem_key      TEXT    NOT NULL,
  actor         TEXT    NOT NULL,
  reason        TEXT    NOT NULL,
  record_before TEXT    NOT NULL,                  -- JSON object
  record_after  TEXT                               -- JSON object; NULL: the record was deleted
) STRICT;

CREATE INDEX onlyonce_audit_record_id ON onlyonce_audit (record_id);

CREATE TRIGGER onlyonce_audit_no_update BEFORE UPDATE ON onlyonce_audit
BEGIN SELECT RAISE(ABORT, 'rows of onlyonce_audit are never changed'); END;

CREATE TRIGGER onlyonce_audit_no_delete BEFORE DELETE ON onlyonce_audit
BEGIN SELECT RAISE(ABORT, 'rows of onlyonce_audit are never deleted'); END;

-- REPLACE deletes the row that is in its way without a trigger.
CREATE TRIGGER onlyonce_audit_no_replace BEFORE INSERT ON onlyonce_audit
WHEN EXISTS (SELECT 1 FROM onlyonce_audit WHERE seq = NEW.seq)
BEGIN SELECT RAISE(ABORT, 'rows of onlyonce_audit are never replaced'); END;

INSERT INTO onlyonce_schema (version) VALUES (6);
