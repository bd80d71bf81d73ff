-- Records the decisions of people about parked messages. Rows are only ever added.

CREATE TABLE onlyonce_outbox_audit (
  seq          bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- the order in which they were decided
  decided_at   bigint  NOT NULL,
  action       text    COLLATE "C" NOT NULL, -- requeue, discard
  actor        text    COLLATE "C" NOT NULL,
  reason       text    COLLATE "C" NOT NULL,
  message_seq  bigint  NOT NULL,             -- the columns of onlyonce_outbox as they were, from here on
  id           text    COLLATE "C" NOT NULL,
  topic        text    COLLATE "C" NOT NULL,
  ordering_key text    COLLATE "C" NOT NULL,
  tenant       text    COLLATE "C" NOT NULL,
  attempts     integer NOT NULL,
  error        text    COLLATE "C"
);

CREATE FUNCTION onlyonce_outbox_audit_is_append_only() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN RAISE EXCEPTION 'rows of onlyonce_outbox_audit are never changed or deleted'; END $$;

CREATE TRIGGER onlyonce_outbox_audit_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON onlyonce_outbox_audit
FOR EACH STATEMENT EXECUTE FUNCTION onlyonce_outbox_audit_is_append_only();

INSERT INTO onlyonce_schema (version) VALUES (8);
