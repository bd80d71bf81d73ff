-- Extends the index of unresolved records to records in a state that no store writes.

DROP INDEX onlyonce_records_unresolved;

CREATE INDEX onlyonce_records_unresolved ON onlyonce_records (created_at) WHERE state NOT IN ('completed', 'failed', 'released');

INSERT INTO onlyonce_schema (version) VALUES (5);
