-- Records the decisions of people about records. Rows are only ever added.

CREATE TABLE onlyonce_audit (
  seq           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- the order in which they were decided
  decided_at    bigint NOT NULL,
  record_id     bytea  NOT NULL,
  tenant        text   COLLATE "C" NOT NULL, -- encoded as in onlyonce_records
  operation     text   COLLATE "C" NOT NULL,
  idem_key      text   COLLATE "C" NOT NULL,
  actor         text   COLLATE "C" NOT NULL,
  reason        text   COLLATE "C" NOT NULL,
  record_before text   COLLATE "C" NOT NULL, -- JSON object
  record_after  text   COLLATE "C"           -- JSON object; NULL: the record was deleted
);

CREATE INDEX onlyonce_audit_record_id ON onlyonce_audit (record_id, seq);

CREATE FUNCTION onlyonce_audit_is_append_only() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN RAISE EXCEPTION 'rows of onlyonce_audit are never changed or deleted'; END $$;

CREATE TRIGGER onlyonce_audit_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON onlyonce_audit
FOR EACH STATEMENT EXECUTE FUNCTION onlyonce_audit_is_append_only();

INSERT INTO onlyonce_schema (version) VALUES (6);
