-- What is sent before it is known which server it is.

-- name: server version
SELECT version();
