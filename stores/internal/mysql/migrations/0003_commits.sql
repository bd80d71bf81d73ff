-- commit_token shows whether a transaction has committed when the response to its COMMIT was lost.
-- It is the token of the last transaction with the caller's rows that settled the record; NULL: none did.
-- MySQL commits each statement separately, so every statement can safely be run again.

SET @onlyonce = IF(EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'onlyonce_records' AND column_name = 'commit_token'),
  'DO 0', 'ALTER TABLE onlyonce_records ADD COLUMN commit_token VARBINARY(16)');

PREPARE onlyonce FROM @onlyonce;

EXECUTE onlyonce;

DEALLOCATE PREPARE onlyonce;

INSERT INTO onlyonce_schema (version) VALUES (3) ON DUPLICATE KEY UPDATE version = 3;
