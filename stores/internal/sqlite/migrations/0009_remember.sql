-- Finds the results that are deleted before their records, and leaves records in the state remembered, of
-- which only the ID is left, out of the index of unresolved records. The header of such a result begins
-- with the time in microseconds for which it stays.

CREATE INDEX onlyonce_records_result_expires ON onlyonce_records (settled_at + CAST(substr(response_header, 12) AS INTEGER))
WHERE substr(response_header, 2, 10) = '":keep":["';

DROP INDEX onlyonce_records_unresolved;

CREATE INDEX onlyonce_records_unresolved ON onlyonce_records (state) WHERE state <> 'completed' AND state <> 'failed' AND state <> 'released' AND state <> 'remembered';

INSERT INTO onlyonce_schema (version) VALUES (9);
