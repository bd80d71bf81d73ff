-- +goose Up
-- Orders, and the shipments that a consumer creates from their events. IDs are
-- ULIDs, times are milliseconds since 1970-01-01 UTC, money is decimal text.

CREATE TABLE orders_orders (
  id           bytea  NOT NULL PRIMARY KEY CHECK (length(id) = 16),
  tenant       text   COLLATE "C" NOT NULL,
  external_ref text,
  items        text   NOT NULL, -- JSON
  total        text   NOT NULL,
  status       text   NOT NULL CHECK (status IN ('created')),
  created_at   bigint NOT NULL
);

CREATE INDEX orders_orders_of_tenant ON orders_orders (tenant, id);

-- No constraint limits an order to one shipment: the inbox does.
CREATE TABLE orders_shipments (
  id         bytea  NOT NULL PRIMARY KEY CHECK (length(id) = 16),
  tenant     text   COLLATE "C" NOT NULL,
  order_id   bytea  NOT NULL,
  status     text   NOT NULL CHECK (status IN ('pending')),
  created_at bigint NOT NULL
);

CREATE INDEX orders_shipments_of_order ON orders_shipments (order_id);
