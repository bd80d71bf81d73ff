-- Records the decisions of people about records. The program only ever adds rows. No trigger enforces
-- that, because creating one takes more privileges than migrating: give roles SELECT and INSERT alone.
-- MySQL commits each statement separately, so every statement can safely be run again.

CREATE TABLE IF NOT EXISTS onlyonce_audit (
  seq           BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY, -- the order in which they were decided
  decided_at    BIGINT          NOT NULL,
  record_id     BINARY(32)      NOT NULL,
  tenant        VARBINARY(1024) NOT NULL,
  operation     VARBINARY(1024) NOT NULL,
  idem_key      VARBINARY(4096) NOT NULL,
  actor         VARBINARY(255)  NOT NULL,
  reason        VARBINARY(2048) NOT NULL,
  record_before MEDIUMBLOB      NOT NULL, -- JSON object
  record_after  MEDIUMBLOB,               -- JSON object; NULL: the record was deleted
  KEY onlyonce_audit_record_id (record_id, seq)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

INSERT INTO onlyonce_schema (version) VALUES (5) ON DUPLICATE KEY UPDATE version = 5;
