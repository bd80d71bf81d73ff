-- +goose Up
-- The name of this database in its events, so that no other takes them.

CREATE TABLE orders_origin (
  one INT            NOT NULL PRIMARY KEY,
  id  VARBINARY(255) NOT NULL
) ENGINE = InnoDB;
