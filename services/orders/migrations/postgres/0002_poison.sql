-- +goose Up
-- Messages that came from a broker and could not be handled.

CREATE TABLE orders_poison (
  id         text   COLLATE "C" NOT NULL,
  tenant     text   COLLATE "C" NOT NULL,
  payload    bytea  NOT NULL,
  error      text   NOT NULL,
  created_at bigint NOT NULL,
  PRIMARY KEY (id, tenant)
);
