package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"modernc.org/sqlite"

	"skerry/fleet"
)

// schemaVersion is the user_version of databases of this release.
const schemaVersion = 2

// migrations[n] changes a database from version n to n+1. A released migration never changes; testdata
// holds a database of each version.
var migrations = []string{`
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE rows (seq INTEGER PRIMARY KEY, age INTEGER NOT NULL, hash BLOB NOT NULL, body BLOB NOT NULL);
CREATE TABLE states (alloc TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE desired (alloc TEXT PRIMARY KEY, body BLOB NOT NULL, job TEXT NOT NULL,
	stop INTEGER NOT NULL, reason TEXT NOT NULL, mentioned INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE bodies (hash TEXT PRIMARY KEY, job BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE handles (alloc TEXT NOT NULL, key TEXT NOT NULL, handle BLOB NOT NULL, PRIMARY KEY (alloc, key)) WITHOUT ROWID;
`, `
ALTER TABLE meta ADD COLUMN sum INTEGER;
ALTER TABLE rows ADD COLUMN sum INTEGER;
ALTER TABLE states ADD COLUMN sum INTEGER;
ALTER TABLE desired ADD COLUMN sum INTEGER;
ALTER TABLE bodies ADD COLUMN sum INTEGER;
ALTER TABLE handles ADD COLUMN sum INTEGER;
`}

// Keys of the meta table.
const (
	metaCheckpoint  = "mark"
	metaBase        = "base"
	metaLink        = "link"
	metaDesired     = "desired"
	metaQuarantined = "quarantined"
	metaLost        = "lost"
	metaVersion     = "version" // the same as user_version, and has a checksum
)

// pragmas are the settings of every connection. With the exclusive lock, the index of the write-ahead log is in
// memory and not in a file on flash.
var pragmas = []string{
	"locking_mode=EXCLUSIVE",
	"journal_mode=WAL",
	"synchronous=FULL",
	"wal_autocheckpoint=0", // the writer does it
	"cache_size=-512",      // KiB
	"temp_store=MEMORY",
	"mmap_size=0",
}

// database is one connection to SQLite, used by one goroutine. Its statements are never interrupted.
type database struct {
	pool *sql.DB
	conn *sql.Conn
	// Prepared statements: those that every transition needs.
	stmtBegin, stmtCommit, stmtRow, stmtState, stmtMeta *sql.Stmt
}

var background = context.Background() // a statement of the journal is never interrupted

// openDatabase opens or makes the database at path, migrates it to schemaVersion and prepares its statements.
// It does not check the content.
func openDatabase(path string) (*database, error) {
	d, err := connect(path)
	if err != nil {
		return nil, err
	}
	version, err := d.checkVersion()
	if err == nil {
		err = d.migrateAndPrepare(version)
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// connect opens or makes the database at path and applies the pragmas. It neither migrates it nor prepares
// statements.
func connect(path string) (*database, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := makePrivate(abs); err != nil {
		return nil, err
	}
	dsn := (&url.URL{Scheme: "file", Path: filepath.ToSlash(abs)}).String()
	pool, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(1)
	d := &database{pool: pool}
	if d.conn, err = pool.Conn(background); err != nil {
		return nil, errors.Join(err, d.close())
	}
	for _, p := range pragmas {
		if err := d.execStatement("PRAGMA " + p); err != nil {
			return nil, errors.Join(fmt.Errorf("set %s: %w", p, err), d.close())
		}
	}
	return d, nil
}

// makePrivate makes an empty file at path if it is missing, and gives all files of that database the mode 0600.
// SQLite gives its log the mode of the database.
func makePrivate(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil // SQLite reports the error with a code
	}
	if err := f.Close(); err != nil {
		return err
	}
	for _, suffix := range []string{"", suffixWAL, "-shm", "-journal"} {
		info, err := os.Stat(path + suffix)
		if err != nil || info.Mode().Perm() == 0o600 {
			continue
		}
		if err := os.Chmod(path+suffix, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// prepareStatements prepares the statements that every transition needs.
func (d *database) prepareStatements() error {
	for _, s := range []struct {
		into **sql.Stmt
		text string
	}{
		{&d.stmtBegin, "BEGIN IMMEDIATE"},
		{&d.stmtCommit, "COMMIT"},
		{&d.stmtRow, "INSERT INTO rows (seq, age, hash, body, sum) VALUES (?, ?, ?, ?, ?)"},
		{&d.stmtState, "INSERT OR REPLACE INTO states (alloc, body, sum) VALUES (?, ?, ?)"},
		{&d.stmtMeta, "INSERT OR REPLACE INTO meta (key, value, sum) VALUES (?, ?, ?)"},
	} {
		var err error
		if *s.into, err = d.conn.PrepareContext(background, s.text); err != nil {
			return fmt.Errorf("prepare %q: %w", s.text, err)
		}
	}
	return nil
}

// checkVersion returns the version of the database. It refuses a newer one with fleet.CodeVersion. A header of a
// newer version is damage where the content is of another version, or is damaged itself.
func (d *database) checkVersion() (version int, err error) {
	if err := d.queryRow("PRAGMA user_version").Scan(&version); err != nil {
		return 0, err
	}
	if version < 0 {
		return 0, damaged("the header says version %d", version)
	}
	var written int
	switch err := d.readMeta(metaVersion, &written); {
	case version <= schemaVersion:
		return version, nil
	case err == nil && written <= schemaVersion: // 0: the content does not say it
		return 0, damaged("the header says version %d, and the content is of version %d", version, written)
	case errors.Is(err, errDamaged) || isCorrupt(err) || isOfAnotherSchema(err): // every release has the table
		return 0, damaged("the header says version %d, and the version in the content is damaged: %v", version, err)
	}
	return 0, fleet.Errorf(fleet.CodeVersion, "the data directory has version %d, this release knows %d", version, schemaVersion).
		WithHint("run the release that wrote it or a newer one")
}

// migrateAndPrepare runs the migrations that a database of a version lacks and writes its new version, in one
// transaction. It also prepares the statements.
func (d *database) migrateAndPrepare(version int) error {
	steps := []func() error{d.prepareStatements, d.writeVersion}
	if version < schemaVersion {
		script := fmt.Sprintf("BEGIN IMMEDIATE; %s; PRAGMA user_version = %d", strings.Join(migrations[version:], ";"), schemaVersion)
		migrate := func() error { return d.execStatement(script) }
		steps = append(slices.Insert(steps, 0, migrate), d.commitTx)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			d.rollbackTx()
			return fmt.Errorf("prepare the database of version %d: %w", version, err)
		}
	}
	return nil
}

// writeVersion writes schemaVersion into the content, unless it is there.
func (d *database) writeVersion() error {
	var written int
	if err := d.readMeta(metaVersion, &written); err != nil || written == schemaVersion {
		return err
	}
	return d.putMeta(metaVersion, schemaVersion)
}

// close closes the statements and the connection, also of a database that was opened only in part.
func (d *database) close() error {
	var errs []error
	for _, s := range []*sql.Stmt{d.stmtBegin, d.stmtCommit, d.stmtRow, d.stmtState, d.stmtMeta} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	if d.conn != nil {
		errs = append(errs, d.conn.Close())
	}
	return errors.Join(append(errs, d.pool.Close())...)
}

// execStatement executes a statement without results.
func (d *database) execStatement(query string, args ...any) error {
	_, err := d.conn.ExecContext(background, query, args...)
	return err
}

// queryRow executes a query with at most one result.
func (d *database) queryRow(query string, args ...any) *sql.Row {
	return d.conn.QueryRowContext(background, query, args...)
}

// forEachResult calls scan for every row of a query until scan returns false or an error.
func (d *database) forEachResult(query string, args []any, scan func(*sql.Rows) (more bool, err error)) error {
	rows, err := d.conn.QueryContext(background, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		more, err := scan(rows)
		if err != nil {
			return err
		}
		if !more {
			return nil
		}
	}
	return rows.Err()
}

// beginTx begins a transaction with SQLite's write lock.
func (d *database) beginTx() error {
	_, err := d.stmtBegin.ExecContext(background)
	return err
}

func (d *database) commitTx() error {
	_, err := d.stmtCommit.ExecContext(background)
	return err
}

// rollbackTx ends a transaction without its changes. If SQLite has ended it already, nothing happens.
func (d *database) rollbackTx() { _ = d.execStatement("ROLLBACK") }

// checkpointWAL copies what is committed from the write-ahead log to the database file.
func (d *database) checkpointWAL() error { return d.execStatement("PRAGMA wal_checkpoint(PASSIVE)") }

// putMeta stores a value under a key of the meta table.
func (d *database) putMeta(key string, value any) error {
	b, err := encode(value)
	if err != nil {
		return fmt.Errorf("encode the value %s of table meta: %w", key, err)
	}
	_, err = d.stmtMeta.ExecContext(background, withChecksum(key, b)...)
	return err
}

// readMeta decodes the value of a key of the meta table into the pointer into. If there is no value, into does
// not change. A damaged value is an error that wraps errDamaged.
func (d *database) readMeta(key string, into any) error {
	var b []byte
	var sum sql.NullInt64
	err := d.queryRow("SELECT value, sum FROM meta WHERE key = ?", key).Scan(&b, &sum)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := checkUnaltered(sum, "meta", key, b); err != nil {
		return err
	}
	if err := decode(b, into); err != nil {
		return damaged("decode the value %s of table meta: %v", key, err)
	}
	return nil
}

// errDamaged is wrapped by errors of damage in the database. It makes openSound set the database aside.
var errDamaged = errors.New("damaged")

// damaged returns an error that wraps errDamaged.
func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errDamaged}, args...)...)
}

// Primary result codes of SQLite, and extended codes of its I/O.
const (
	sqliteError    = 1
	sqlitePerm     = 3
	sqliteBusy     = 5
	sqliteLocked   = 6
	sqliteNoMem    = 7
	sqliteReadOnly = 8
	sqliteIO       = 10
	sqliteCorrupt  = 11
	sqliteFull     = 13
	sqliteCantOpen = 14
	sqliteAuth     = 23

	sqliteIORead      = sqliteIO | 1<<8
	sqliteIOShortRead = sqliteIO | 2<<8
	sqliteIOCorruptFS = sqliteIO | 33<<8
)

// sqliteCode returns the primary and the extended result code in an error of SQLite; 0 for other errors.
func sqliteCode(err error) (primary, extended int) {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff, e.Code()
	}
	return 0, 0
}

// isDamage reports whether an error means that the database itself is damaged, and not that the disk is full,
// read-only or in use. The journal's statements never change, so an error without such an explanation is
// damage.
func isDamage(err error) bool {
	var system *fs.PathError
	var known *fleet.Error
	switch {
	case errors.Is(err, errDamaged):
		return true
	case errors.As(err, &system), errors.As(err, &known):
		return false
	}
	_, extended := sqliteCode(err)
	return isDamageCode(extended)
}

// isDamageCode reports whether an extended result code means that the database itself is damaged. A failure to write or to
// flush means that the disk is.
func isDamageCode(extended int) bool {
	switch extended & 0xff {
	case sqliteIO:
		return slices.Contains([]int{sqliteIORead, sqliteIOShortRead, sqliteIOCorruptFS}, extended)
	case sqlitePerm, sqliteBusy, sqliteLocked, sqliteNoMem, sqliteReadOnly, sqliteFull, sqliteCantOpen, sqliteAuth:
		return false
	}
	return true
}

// isCorrupt reports whether SQLite found that the file is not a sound database. A statement that only does not
// fit to the schema fails with another code.
func isCorrupt(err error) bool {
	primary, _ := sqliteCode(err)
	return primary == sqliteCorrupt
}

// isOfAnotherSchema reports whether a statement does not fit to the schema, which names no such table or column.
func isOfAnotherSchema(err error) bool {
	primary, _ := sqliteCode(err)
	return primary == sqliteError
}

// isFull reports whether an error means that the disk or the quota is full.
func isFull(err error) bool {
	primary, _ := sqliteCode(err)
	return primary == sqliteFull || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) ||
		fleet.CodeOf(err) == fleet.CodeUnavailable
}

// diskError turns SQLite's errors for a full, locked or unwritable disk into errors with a code and a hint. It
// returns others unchanged.
func diskError(err error) error {
	switch primary, _ := sqliteCode(err); primary {
	case sqliteBusy:
		return fleet.Errorf(fleet.CodeConflict, "the journal is in use by another process: %v", err)
	case sqliteFull:
		return fleet.Errorf(fleet.CodeUnavailable, "write the journal: the disk is full: %v", err).WithHint("free some space on the disk of the data directory")
	case sqliteReadOnly, sqliteCantOpen, sqlitePerm:
		return fleet.Errorf(fleet.CodeForbidden, "the data directory is not writable: %v", err).
			WithHint("check the owner and the mode of the data directory, and whether the disk is mounted read-only")
	}
	return err
}
