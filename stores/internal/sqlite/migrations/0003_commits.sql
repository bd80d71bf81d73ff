-- How a transaction whose commit was not answered is found.

ALTER TABLE onlyonce_records ADD COLUMN commit_token BLOB; -- of the last transaction with rows of the caller's that settled the record; NULL: none did

INSERT INTO onlyonce_schema (version) VALUES (3);
