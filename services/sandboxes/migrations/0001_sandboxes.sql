-- +goose Up
-- Sandboxes and their sessions. Times are seconds since 1970-01-01 UTC, by
-- the database's clock.

CREATE TABLE sandboxes_sandboxes (
  id              TEXT    PRIMARY KEY,
  owner           TEXT    NOT NULL,
  profile         TEXT    NOT NULL,
  workspace_id    TEXT    NOT NULL,
  created_at      INTEGER NOT NULL,
  expires_at      INTEGER,              -- NULL: never
  session_id      TEXT,                 -- NULL: no session
  session_state   TEXT    CHECK (session_state IN ('starting', 'ready', 'failed')), -- NULL: idle
  session_server  TEXT,                 -- the server process that started the session
  session_handle  TEXT,                 -- the handle of the current or last session
  idle_expires_at INTEGER,              -- when the session ends; NULL: no session
  deleted_at      INTEGER,              -- when deletion began; NULL: not deleted
  CHECK ((session_id IS NOT NULL) = (session_state IS NOT NULL AND session_state <> 'failed'))
) STRICT;

CREATE INDEX sandboxes_sandboxes_owner ON sandboxes_sandboxes (owner, id);

CREATE INDEX sandboxes_sandboxes_workspace ON sandboxes_sandboxes (workspace_id);

CREATE INDEX sandboxes_sandboxes_session ON sandboxes_sandboxes (session_id) WHERE session_id IS NOT NULL;

CREATE INDEX sandboxes_sandboxes_deleted ON sandboxes_sandboxes (deleted_at) WHERE deleted_at IS NOT NULL;
