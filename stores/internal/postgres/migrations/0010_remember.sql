-- Finds the results that are deleted before their records, and leaves records in the state remembered, of
-- which only the ID is left, out of the index of unresolved records. The header of such a result begins
-- with the time in microseconds for which it stays.

CREATE INDEX onlyonce_records_result_expires ON onlyonce_records
  ((CASE WHEN substr(response_header, 2, 10) = '":keep":["' THEN settled_at + split_part(response_header, '"', 4)::bigint END))
WHERE substr(response_header, 2, 10) = '":keep":["';

DROP INDEX onlyonce_records_unresolved;

CREATE INDEX onlyonce_records_unresolved ON onlyonce_records (created_at) WHERE state NOT IN ('completed', 'failed', 'released', 'remembered');

INSERT INTO onlyonce_schema (version) VALUES (10);
