-- Adds indexes for lists by tenant, operation and ref, and for unresolved records. The tenant and
-- the operation have at most 1024 bytes, so that an index holds and sorts the whole value.
-- lapsed_keep is the time in microseconds for which a record stays after its lease has lapsed.
-- With 0, the record stays until someone resolves it.
-- MySQL commits each statement separately, so every statement can safely be run again.

SET @onlyonce = IF(EXISTS (SELECT 1 FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'onlyonce_records' AND index_name = 'onlyonce_records_tenant'),
  'DO 0', 'ALTER TABLE onlyonce_records MODIFY tenant VARBINARY(1024) NOT NULL, MODIFY operation VARBINARY(1024) NOT NULL,
  ADD KEY onlyonce_records_tenant (tenant, created_at), ADD KEY onlyonce_records_operation (operation, created_at),
  ADD COLUMN lapsed_keep BIGINT NOT NULL DEFAULT 0,
  ADD KEY onlyonce_records_result_ref (result_ref(64)), ADD KEY onlyonce_records_unresolved (state, created_at)');

PREPARE onlyonce FROM @onlyonce;

EXECUTE onlyonce;

DEALLOCATE PREPARE onlyonce;

-- The server may show a commit before it is flushed. A store that has read such a commit writes
-- to this table, and returns what it read only after that later commit has been flushed.
CREATE TABLE IF NOT EXISTS onlyonce_flush (
  one INT    NOT NULL PRIMARY KEY,
  n   BIGINT NOT NULL
) ENGINE = InnoDB;

INSERT INTO onlyonce_schema (version) VALUES (4) ON DUPLICATE KEY UPDATE version = 4;
