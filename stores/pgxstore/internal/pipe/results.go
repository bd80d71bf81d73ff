package pipe

import (
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// results are the results of a batch.
type results struct {
	pgx.BatchResults // nil: the methods that are not overridden are not used
	types            *pgtype.Map
	pipeline         *pgconn.Pipeline // nil: nothing was sent
	err              error
	closed           bool
}

// next waits for the result of the next statement.
func (r *results) next() (*pgconn.ResultReader, error) {
	if r.err != nil {
		return nil, r.err
	}
	result, err := r.pipeline.GetResults()
	if err != nil {
		r.err = err
		return nil, err
	}
	reader, ok := result.(*pgconn.ResultReader)
	if !ok {
		r.err = errors.New("the server returned more results than statements were sent")
	}
	return reader, r.err
}

// Exec waits for the end of the next statement.
func (r *results) Exec() (pgconn.CommandTag, error) {
	reader, err := r.next()
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := reader.Close()
	if err != nil {
		r.err = err
	}
	return tag, err
}

// Query returns the rows of the next statement.
func (r *results) Query() (pgx.Rows, error) {
	reader, err := r.next()
	if err != nil {
		return failedRows{err: err}, err
	}
	return pgx.RowsFromResultReader(r.types, reader), nil
}

// QueryRow returns the only row of the next statement.
func (r *results) QueryRow() pgx.Row {
	rows, err := r.Query()
	return onlyRow{rows, err}
}

// Close reads the results that are left.
func (r *results) Close() error {
	if r.pipeline != nil && !r.closed {
		r.closed = true
		if err := r.pipeline.Close(); r.err == nil {
			r.err = err
		}
	}
	return r.err
}

// An onlyRow is the first of the rows.
type onlyRow struct {
	rows pgx.Rows
	err  error
}

// Scan reads the row's values.
func (r onlyRow) Scan(into ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(into...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

// failedRows are the rows of a statement that failed.
type failedRows struct {
	pgx.Rows
	err error
}

func (r failedRows) Close()            {}
func (r failedRows) Err() error        { return r.err }
func (r failedRows) Next() bool        { return false }
func (r failedRows) Scan(...any) error { return r.err }
