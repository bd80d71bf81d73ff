-- Adds indexes for lists by tenant, operation and ref, and for unresolved records. Each index is
-- in the order of created_at. Records without a tenant, operation or ref are not in the index for it.

CREATE INDEX onlyonce_records_tenant ON onlyonce_records (tenant) WHERE tenant <> '';

CREATE INDEX onlyonce_records_operation ON onlyonce_records (operation) WHERE operation <> '';

CREATE INDEX onlyonce_records_result_ref ON onlyonce_records (result_ref) WHERE result_ref IS NOT NULL;

ALTER TABLE onlyonce_records ADD COLUMN lapsed_keep INTEGER NOT NULL DEFAULT 0; -- time in microseconds for which the record stays after its lease has lapsed; 0: until someone resolves it

CREATE INDEX onlyonce_records_unresolved ON onlyonce_records (state) WHERE state IN ('processing', 'unknown');

INSERT INTO onlyonce_schema (version) VALUES (4);
