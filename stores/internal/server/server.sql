-- The statements that are the same on every database server.

-- name: server version
-- It is sent before the kind of server is known.
SELECT version();

-- name: floor
SELECT floor FROM onlyonce_fence WHERE {here};
