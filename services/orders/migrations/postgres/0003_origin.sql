-- +goose Up
-- The name of this database in its events, so that no other takes them.

CREATE TABLE orders_origin (
  one integer PRIMARY KEY CHECK (one = 1),
  id  text    NOT NULL
);
