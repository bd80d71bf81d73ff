-- Adds indexes for lists by tenant, operation and ref, and for unresolved records.
-- Records without a tenant, operation or ref are not in the index for it.

CREATE INDEX onlyonce_records_tenant ON onlyonce_records (tenant, created_at) WHERE tenant <> '';

CREATE INDEX onlyonce_records_operation ON onlyonce_records (operation, created_at) WHERE operation <> '';

CREATE INDEX onlyonce_records_result_ref ON onlyonce_records USING hash (result_ref) WHERE result_ref IS NOT NULL; -- a hash index, because a ref may be of any length

ALTER TABLE onlyonce_records ADD COLUMN lapsed_keep bigint NOT NULL DEFAULT 0; -- time in microseconds for which the record stays after its lease has lapsed; 0: until someone resolves it

CREATE INDEX onlyonce_records_unresolved ON onlyonce_records (created_at) WHERE state IN ('processing', 'unknown');

-- Few records have the same created_at. Sorting them is cheaper than keeping the id in the index.
DROP INDEX onlyonce_records_created_at;

CREATE INDEX onlyonce_records_created_at ON onlyonce_records (created_at);

INSERT INTO onlyonce_schema (version) VALUES (4);
