-- Lists by tenant, operation and ref, and what is unresolved, are found by index. No part
-- of an ID has more than 1024 bytes, so that the index holds all of it, and its order.
-- lapsed_keep is for how many microseconds the record stays after its lease has lapsed;
-- 0: until someone resolves it.
-- MySQL commits each statement by itself, so each may be run again.

SET @onlyonce = IF(EXISTS (SELECT 1 FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'onlyonce_records' AND index_name = 'onlyonce_records_tenant'),
  'DO 0', 'ALTER TABLE onlyonce_records MODIFY tenant VARBINARY(1024) NOT NULL, MODIFY operation VARBINARY(1024) NOT NULL,
  ADD KEY onlyonce_records_tenant (tenant, created_at), ADD KEY onlyonce_records_operation (operation, created_at),
  ADD COLUMN lapsed_keep BIGINT NOT NULL DEFAULT 0,
  ADD KEY onlyonce_records_result_ref (result_ref(64)), ADD KEY onlyonce_records_unresolved (state, created_at)');

PREPARE onlyonce FROM @onlyonce;

EXECUTE onlyonce;

DEALLOCATE PREPARE onlyonce;

-- What is read from a commit that the server may not have flushed is given away only
-- after a commit of one's own here, which is flushed after it.
CREATE TABLE IF NOT EXISTS onlyonce_flush (
  one INT    NOT NULL PRIMARY KEY,
  n   BIGINT NOT NULL
) ENGINE = InnoDB;

INSERT INTO onlyonce_schema (version) VALUES (4) ON DUPLICATE KEY UPDATE version = 4;
