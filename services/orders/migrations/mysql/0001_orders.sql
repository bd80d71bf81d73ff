-- +goose Up
-- Orders, and the shipments that a consumer creates from their events. IDs are
-- ULIDs, times are milliseconds since 1970-01-01 UTC, money is decimal text.

CREATE TABLE orders_orders (
  id           BINARY(16)     NOT NULL PRIMARY KEY,
  tenant       VARBINARY(128) NOT NULL,
  external_ref VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
  items        MEDIUMBLOB     NOT NULL, -- JSON
  total        VARCHAR(40) CHARACTER SET ascii NOT NULL,
  status       VARCHAR(20) CHARACTER SET ascii NOT NULL CHECK (status IN ('created')),
  created_at   BIGINT         NOT NULL,
  KEY orders_orders_of_tenant (tenant, id)
) ENGINE = InnoDB;

-- No constraint limits an order to one shipment: the inbox does.
CREATE TABLE orders_shipments (
  id         BINARY(16)     NOT NULL PRIMARY KEY,
  tenant     VARBINARY(128) NOT NULL,
  order_id   BINARY(16)     NOT NULL,
  status     VARCHAR(20) CHARACTER SET ascii NOT NULL CHECK (status IN ('pending')),
  created_at BIGINT         NOT NULL,
  KEY orders_shipments_of_order (order_id)
) ENGINE = InnoDB;
