/*
 * Claims and completes commands with one row each, in the table naive_records, which must exist.
 * Each batch of claims, and each batch of settlements, is one transaction, which is flushed.
 *
 * batched_writer FILE BATCH COMMANDS CHECKPOINT
 *
 * writes how many nanoseconds the commands took. CHECKPOINT is how many pages the log has when it
 * is checkpointed.
 */
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static sqlite3 *db;

static void must(int ok) {
  if (ok) return;
  fprintf(stderr, "%s\n", sqlite3_errmsg(db));
  exit(1);
}

static void run(const char *sql) { must(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK); }

static sqlite3_stmt *prepare(const char *sql) {
  sqlite3_stmt *st;
  must(sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK);
  return st;
}

static void step(sqlite3_stmt *st) {
  must(sqlite3_step(st) == SQLITE_DONE && sqlite3_changes(db) == 1);
  must(sqlite3_reset(st) == SQLITE_OK);
}

static sqlite3_int64 now(clockid_t clock, int per_second) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (sqlite3_int64)t.tv_sec * per_second + t.tv_nsec / (1000000000 / per_second);
}

/* random_bytes fills p, a multiple of 8 bytes, from a generator that is fast and good enough for keys (splitmix64). */
static void random_bytes(unsigned char *p, int n) {
  static unsigned long long state;
  if (state == 0) {
    int f = open("/dev/urandom", O_RDONLY);
    if (f < 0 || read(f, &state, sizeof state) != sizeof state) exit(1);
    close(f);
  }
  for (int i = 0; i < n; i += 8) {
    unsigned long long z = (state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    memcpy(p + i, &z, 8);
  }
}

int main(int argc, char **argv) {
  if (argc != 5) return 2;
  int batch = atoi(argv[2]), commands = atoi(argv[3]);
  char checkpoint[64];
  snprintf(checkpoint, sizeof checkpoint, "PRAGMA wal_autocheckpoint = %d", atoi(argv[4]));
  must(sqlite3_open(argv[1], &db) == SQLITE_OK);
  run("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL");
  run(checkpoint);
  sqlite3_stmt *begin = prepare("BEGIN IMMEDIATE"), *commit = prepare("COMMIT");
  sqlite3_stmt *claim = prepare(
      "INSERT INTO naive_records (id, tenant, operation, idem_key, fingerprint, state, owner, attempt, fence, lease_until, created_at) "
      "VALUES (?, 'tenant', 'POST /v1/orders', ?, ?, 'processing', ?, 1, ?, ?, ?) ON CONFLICT (id) DO NOTHING");
  sqlite3_stmt *settle = prepare(
      "UPDATE naive_records SET state = 'completed', status_code = 201, response_header = '{\"Content-Type\":[\"application/json\"]}', "
      "response_body = ?, settled_at = ?, expires_at = ? WHERE id = ? AND owner = ? AND state = 'processing'");
  unsigned char (*ids)[32] = malloc(batch * sizeof *ids), (*owners)[16] = malloc(batch * sizeof *owners), fingerprint[32];
  static unsigned char body[500];
  random_bytes(fingerprint, sizeof fingerprint);

  sqlite3_int64 began = now(CLOCK_MONOTONIC, 1000000000);
  for (int done = 0; done < commands;) {
    int n = commands - done < batch ? commands - done : batch;
    must(sqlite3_step(begin) == SQLITE_DONE && sqlite3_reset(begin) == SQLITE_OK);
    sqlite3_int64 t = now(CLOCK_REALTIME, 1000000);
    for (int i = 0; i < n; i++) {
      char key[32];
      random_bytes(ids[i], 32);
      random_bytes(owners[i], 16);
      snprintf(key, sizeof key, "bench-%d", done + i);
      sqlite3_bind_blob(claim, 1, ids[i], 32, SQLITE_STATIC);
      sqlite3_bind_text(claim, 2, key, -1, SQLITE_STATIC);
      sqlite3_bind_blob(claim, 3, fingerprint, 32, SQLITE_STATIC);
      sqlite3_bind_blob(claim, 4, owners[i], 16, SQLITE_STATIC);
      sqlite3_bind_int64(claim, 5, t);
      sqlite3_bind_int64(claim, 6, t + 30000000);
      sqlite3_bind_int64(claim, 7, t);
      step(claim);
    }
    must(sqlite3_step(commit) == SQLITE_DONE && sqlite3_reset(commit) == SQLITE_OK);
    must(sqlite3_step(begin) == SQLITE_DONE && sqlite3_reset(begin) == SQLITE_OK);
    t = now(CLOCK_REALTIME, 1000000);
    for (int i = 0; i < n; i++) {
      sqlite3_bind_blob(settle, 1, body, sizeof body, SQLITE_STATIC);
      sqlite3_bind_int64(settle, 2, t);
      sqlite3_bind_int64(settle, 3, t + 86400000000ll);
      sqlite3_bind_blob(settle, 4, ids[i], 32, SQLITE_STATIC);
      sqlite3_bind_blob(settle, 5, owners[i], 16, SQLITE_STATIC);
      step(settle);
    }
    must(sqlite3_step(commit) == SQLITE_DONE && sqlite3_reset(commit) == SQLITE_OK);
    done += n;
  }
  printf("%lld\n", now(CLOCK_MONOTONIC, 1000000000) - began);
  return 0;
}
