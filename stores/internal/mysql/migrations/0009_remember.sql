-- result_expires is when the result is deleted, if that is before its record. Of a record in the state
-- remembered, only the ID is left.
-- MySQL commits each statement separately, so every statement can safely be run again.

SET @onlyonce = IF(EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'onlyonce_records' AND column_name = 'result_expires'),
  'DO 0', 'ALTER TABLE onlyonce_records ADD COLUMN result_expires BIGINT, ADD KEY onlyonce_records_result_expires (result_expires)');

PREPARE onlyonce FROM @onlyonce;

EXECUTE onlyonce;

DEALLOCATE PREPARE onlyonce;

INSERT INTO onlyonce_schema (version) VALUES (9) ON DUPLICATE KEY UPDATE version = 9;
