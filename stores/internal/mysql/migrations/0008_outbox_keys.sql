-- Adds an index by which a lease finds out whether a message of a key is held, parked or first.
-- MySQL commits each statement separately, so every statement can safely be run again.

SET @onlyonce = IF(EXISTS (SELECT 1 FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'onlyonce_outbox' AND index_name = 'onlyonce_outbox_key'),
  'DO 0', 'ALTER TABLE onlyonce_outbox ADD KEY onlyonce_outbox_key (ordering_key, state)');

PREPARE onlyonce FROM @onlyonce;

EXECUTE onlyonce;

DEALLOCATE PREPARE onlyonce;

INSERT INTO onlyonce_schema (version) VALUES (8) ON DUPLICATE KEY UPDATE version = 8;
