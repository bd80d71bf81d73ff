-- Records the decisions of people about parked messages. The program only ever adds rows. No trigger
-- enforces that, because creating one takes more privileges than migrating: give roles SELECT and INSERT
-- alone.
-- MySQL commits each statement separately, so every statement can safely be run again.

CREATE TABLE IF NOT EXISTS onlyonce_outbox_audit (
  seq          BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY, -- the order in which they were decided
  decided_at   BIGINT          NOT NULL,
  action       VARBINARY(16)   NOT NULL, -- requeue, discard
  actor        VARBINARY(255)  NOT NULL,
  reason       VARBINARY(2048) NOT NULL,
  message_seq  BIGINT          NOT NULL, -- the columns of onlyonce_outbox as they were, from here on
  id           VARBINARY(255)  NOT NULL,
  topic        VARBINARY(255)  NOT NULL,
  ordering_key VARBINARY(255)  NOT NULL,
  tenant       VARBINARY(255)  NOT NULL,
  attempts     INT             NOT NULL,
  error        BLOB
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

INSERT INTO onlyonce_schema (version) VALUES (7) ON DUPLICATE KEY UPDATE version = 7;
