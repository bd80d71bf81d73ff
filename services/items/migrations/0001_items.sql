-- +goose Up
-- The catalog. created_at is in seconds since 1970-01-01 UTC, by the
-- database's clock.

CREATE TABLE items_items (
  id         INTEGER PRIMARY KEY AUTOINCREMENT, -- never reused
  sku        TEXT    NOT NULL,
  title      TEXT    NOT NULL,
  status     TEXT    NOT NULL CHECK (status IN ('active', 'inactive', 'draft')),
  brand      TEXT,
  category   TEXT,
  created_at INTEGER NOT NULL
) STRICT;
