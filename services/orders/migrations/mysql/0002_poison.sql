-- +goose Up
-- Messages that came from a broker and could not be handled.

CREATE TABLE orders_poison (
  id         VARBINARY(255) NOT NULL,
  tenant     VARBINARY(255) NOT NULL,
  payload    LONGBLOB       NOT NULL,
  error      TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  created_at BIGINT         NOT NULL,
  PRIMARY KEY (id, tenant)
) ENGINE = InnoDB;
