package storeurl

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/defaults"
	"github.com/onlyonce-go/onlyonce/internal/storeurl/private"
)

// ReadSecret reads a secret from a file: its content without surrounding white space.
func ReadSecret(path string, acceptRisks []string) ([]byte, error) {
	text, err := private.Read(path, acceptRisks)
	if err != nil {
		return nil, fmt.Errorf("read the fingerprint secret: %w", err)
	}
	secret := bytes.TrimSpace(text)
	if len(secret) < defaults.ShortestSecret {
		return nil, fmt.Errorf("the fingerprint secret in %s has %d characters: write at least %d random ones, such as those of openssl rand -hex 32", path, len(secret), defaults.ShortestSecret)
	}
	return secret, nil
}

// FingerprintSecret returns the secret that keys the fingerprints in a store: the one
// in the file at path, if there is a path. Otherwise, a SQLite store has its own
// secret beside its file, which is created if it does not exist. A store on a server
// then has none, because all processes on the store need the same one.
func FingerprintSecret(ctx context.Context, u URL, store onlyonce.Lister, path string, acceptRisks []string, log *slog.Logger) ([]byte, error) {
	if path != "" {
		return ReadSecret(path, acceptRisks)
	}
	if u.Engine != SQLite {
		log.Warn("the fingerprints in the store have no secret: anyone who can read the store can recover a short body by trying all possibilities; give all processes that share the store the same secret (--fingerprint-secret-file, or fingerprint_secret_file in a file of settings)", "store", u.String())
		return nil, nil
	}
	path = u.Path + ".secret"
	made, err := makeSecret(path)
	if err != nil {
		return nil, fmt.Errorf("create the fingerprint secret %s: %w", path, err)
	}
	if made {
		level, text := slog.LevelInfo, "a fingerprint secret was generated: keep it with the store, also in backups"
		if hasRecords(ctx, store) {
			level, text = slog.LevelWarn, "a fingerprint secret was generated for a store that has records: repeats of earlier requests are rejected as different ones until their records expire; if the file was lost, restore it"
		}
		log.Log(ctx, level, text, "file", path)
	}
	return ReadSecret(path, acceptRisks)
}

// hasRecords reports whether the store has a record, or cannot be read.
func hasRecords(ctx context.Context, store onlyonce.Lister) bool {
	for range store.List(ctx, onlyonce.Filter{Limit: 1}) {
		return true
	}
	return false
}

// makeSecret creates a secret unless there is one, and reports whether it did. Of
// several processes only one does, and none of them reads an incomplete file.
func makeSecret(path string) (made bool, err error) {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return false, nil // an error shows when the file is read
	}
	random := make([]byte, 2*defaults.ShortestSecret)
	if _, err := rand.Read(random); err != nil {
		return false, err
	}
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*") // of mode 0600
	if err != nil {
		return false, err
	}
	defer os.Remove(file.Name())
	_, err = file.WriteString(hex.EncodeToString(random) + "\n")
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return false, err
	}
	err = os.Link(file.Name(), path) // fails if another process was faster
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, syncFolder(filepath.Dir(path))
}

// syncFolder makes the name of a new file survive a crash of the machine.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	_ = folder.Sync() // some file systems do not support it
	return folder.Close()
}
