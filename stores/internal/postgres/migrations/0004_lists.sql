-- Lists by tenant, operation and ref, and what is unresolved, are found by index.
-- What has no tenant, operation or ref costs nothing there.

CREATE INDEX onlyonce_records_tenant ON onlyonce_records (tenant, created_at) WHERE tenant <> '';

CREATE INDEX onlyonce_records_operation ON onlyonce_records (operation, created_at) WHERE operation <> '';

CREATE INDEX onlyonce_records_result_ref ON onlyonce_records USING hash (result_ref) WHERE result_ref IS NOT NULL; -- which may be of any length

ALTER TABLE onlyonce_records ADD COLUMN lapsed_keep bigint NOT NULL DEFAULT 0; -- microseconds that the record stays after its lease has lapsed; 0: until someone resolves it

CREATE INDEX onlyonce_records_unresolved ON onlyonce_records (created_at) WHERE state IN ('processing', 'unknown');

-- Records of the same instant are few: the id in the index cost more than to sort them.
DROP INDEX onlyonce_records_created_at;

CREATE INDEX onlyonce_records_created_at ON onlyonce_records (created_at);

INSERT INTO onlyonce_schema (version) VALUES (4);
