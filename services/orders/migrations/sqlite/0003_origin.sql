-- +goose Up
-- The name of this database in its events, so that no other takes them.

CREATE TABLE orders_origin (
  one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
  id  TEXT    NOT NULL
) STRICT;
