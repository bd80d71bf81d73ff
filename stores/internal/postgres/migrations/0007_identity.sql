-- Gives the store an identity: random letters in the name of its clock. Every statement that depends on
-- what the store holds names the clock, so none of them is executed in another store.

DO $$ BEGIN
  EXECUTE 'ALTER FUNCTION onlyonce_now() RENAME TO onlyonce_now_' || left(md5(gen_random_uuid()::text), 16);
END $$;

INSERT INTO onlyonce_schema (version) VALUES (7);
