-- Extends the index of unresolved records to records in a state that no store writes. NOT IN with more
-- than two values would create a temporary table for every statement that changes a record.

DROP INDEX onlyonce_records_unresolved;

CREATE INDEX onlyonce_records_unresolved ON onlyonce_records (state) WHERE state <> 'completed' AND state <> 'failed' AND state <> 'released';

INSERT INTO onlyonce_schema (version) VALUES (5);
