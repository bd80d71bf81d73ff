-- Gives the store an identity: random letters in the name of a function that returns the clock. Every
-- statement that depends on what the store holds calls it, so none of them is executed in another store.
-- PostgreSQL replaces the call by that of onlyonce_now(), so it costs nothing.

DO $$ BEGIN
  EXECUTE 'CREATE FUNCTION onlyonce_now_' || left(replace(gen_random_uuid()::text, '-', ''), 16)
    || '() RETURNS bigint LANGUAGE sql VOLATILE AS ''SELECT onlyonce_now()''';
END $$;

INSERT INTO onlyonce_schema (version) VALUES (7);
