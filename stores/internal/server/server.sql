-- Statements that are sent before the kind of server is known.

-- name: server version
SELECT version();
