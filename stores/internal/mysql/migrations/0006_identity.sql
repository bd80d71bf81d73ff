-- Gives the store an identity: random letters in the name of a column. Every statement that depends on
-- what the store holds names the column, so none of them is executed in another store. The column's value
-- is never read.
-- MySQL commits each statement separately, so every statement can safely be run again.

SET @onlyonce = IF(EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'onlyonce_fence' AND LEFT(column_name, 15) = 'onlyonce_store_'),
  'DO 0', CONCAT('ALTER TABLE onlyonce_fence ADD COLUMN onlyonce_store_', LEFT(SHA2(CONCAT(UUID(), RAND(), @@hostname, @@port, @@datadir), 256), 16), ' TINYINT NOT NULL DEFAULT 1'));

PREPARE onlyonce FROM @onlyonce;

EXECUTE onlyonce;

DEALLOCATE PREPARE onlyonce;

INSERT INTO onlyonce_schema (version) VALUES (6) ON DUPLICATE KEY UPDATE version = 6;
