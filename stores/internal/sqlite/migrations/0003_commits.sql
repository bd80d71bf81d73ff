-- Shows whether a transaction has committed when the response to its COMMIT was lost.

ALTER TABLE onlyonce_records ADD COLUMN commit_token BLOB; -- token of the last transaction with the caller's rows that settled the record; NULL: none did

INSERT INTO onlyonce_schema (version) VALUES (3);
