-- +goose Up
-- Messages that came from a broker and could not be handled.

CREATE TABLE orders_poison (
  id         TEXT    NOT NULL,
  tenant     TEXT    NOT NULL,
  payload    BLOB    NOT NULL,
  error      TEXT    NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (id, tenant)
) STRICT;
