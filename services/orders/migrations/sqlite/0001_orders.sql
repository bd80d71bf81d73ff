-- +goose Up
-- Orders, and the shipments that a consumer creates from their events. IDs are
-- ULIDs, times are milliseconds since 1970-01-01 UTC, money is decimal text.

CREATE TABLE orders_orders (
  id           BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
  tenant       TEXT    NOT NULL,
  external_ref TEXT,
  items        TEXT    NOT NULL, -- JSON
  total        TEXT    NOT NULL,
  status       TEXT    NOT NULL CHECK (status IN ('created')),
  created_at   INTEGER NOT NULL
) STRICT;

CREATE INDEX orders_orders_of_tenant ON orders_orders (tenant, id);

-- No constraint limits an order to one shipment: the inbox does.
CREATE TABLE orders_shipments (
  id         BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
  tenant     TEXT    NOT NULL,
  order_id   BLOB    NOT NULL,
  status     TEXT    NOT NULL CHECK (status IN ('pending')),
  created_at INTEGER NOT NULL
) STRICT;

CREATE INDEX orders_shipments_of_order ON orders_shipments (order_id);
