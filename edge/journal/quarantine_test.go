package journal_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"skerry/edge/journal"
	"skerry/fleet"
)

// mustFill makes a closed database with n rows, the first acked of them acknowledged.
func mustFill(t testing.TB, cfg journal.Config, n int, acked fleet.Seq) {
	t.Helper()
	ctx := context.Background()
	j := mustOpen(t, cfg)
	if _, err := j.PutDesired(ctx, delivery(4)); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		tr := status(i%2, fleet.ClientRunning)
		tr.ClientDescription = fmt.Sprint("row ", i)
		mustRecord(t, j, tr)
	}
	j.Acknowledge(acked)
	if err := j.PutLink(ctx, journal.Link{Session: 12}, nil); err != nil {
		t.Fatal(err)
	}
	if err := j.PutHandle(ctx, allocID(0), "t", []byte("handle")); err != nil {
		t.Fatal(err)
	}
	mustClose(t, j)
}

// mustAlter runs SQL on a closed database.
func mustAlter(t testing.TB, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(statement); err != nil {
		t.Fatal(err)
	}
}

func mustRead(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustWrite(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func mustQuarantine(t testing.TB, j *journal.Journal) journal.Quarantine {
	t.Helper()
	q := j.Quarantined()
	if len(q) != 1 {
		t.Fatalf("quarantined: %+v", q)
	}
	if _, err := os.Stat(q[0].Path); err != nil {
		t.Fatalf("the damaged database is not kept: %v", err)
	}
	t.Logf("quarantined: %+v", q[0])
	return q[0]
}

func TestAlteredRowBecomesAGap(t *testing.T) {
	m, path := newMachine(), dbPath(t)
	mustFill(t, m.journalConfig(path), 20, 5)
	mustAlter(t, path, "UPDATE rows SET body = zeroblob(30) WHERE seq = 12")
	j := mustOpen(t, m.journalConfig(path))
	q := mustQuarantine(t, j)
	if q.Lost != 1 || q.Salvaged != 19 || q.EndUnknown || j.Head().Lost == "" {
		t.Fatalf("quarantined: %+v", q)
	}
	ts := mustReadAll(t, j)
	if len(ts) != 20 || ts[11].Kind != fleet.TransitionGap || ts[11].Dropped != 1 || ts[12].ClientDescription != "row 12" {
		t.Fatalf("rows: %+v", ts)
	}
	want, err := j.Desired(context.Background())
	if err != nil || want.Index != 0 || len(want.Allocs) != 3 || want.Allocs[allocID(0)].Alloc.Job == nil {
		t.Fatalf("desired: %+v, %v", want, err)
	}
	if l := j.Link(); l.Session != 12 {
		t.Fatalf("link: %+v", l)
	}
	if h, _ := j.Handles(context.Background(), allocID(0)); string(h["t"]) != "handle" {
		t.Fatalf("handles: %v", h)
	}
	mustRecord(t, j, status(0, fleet.ClientComplete))
	mustClose(t, j)
	j = mustOpen(t, m.journalConfig(path))
	mustQuarantine(t, j) // no second time
	mustReadAll(t, j)
}

// A rebuilt journal leaves out altered desired allocations and keeps those between them.
func TestAlteredDesiredAllocsAloneAreLeftOut(t *testing.T) {
	m, path := newMachine(), dbPath(t)
	mustFill(t, m.journalConfig(path), 20, 5)
	mustAlter(t, path, fmt.Sprintf("UPDATE desired SET sum = sum + 1 WHERE alloc IN ('%s', '%s')", allocID(0), allocID(2)))
	j := mustOpen(t, m.journalConfig(path))
	mustQuarantine(t, j)
	want, err := j.Desired(context.Background())
	if err != nil || len(want.Allocs) != 1 || want.Allocs[allocID(1)].Alloc.Job == nil {
		t.Errorf("desired: %+v, %v; want the one that was not altered", want, err)
	}
}

// A row that cannot be decoded becomes a gap row, also if the row before it is missing and no hash
// shows the damage.
func TestAlteredRowBehindAHole(t *testing.T) {
	m, path := newMachine(), dbPath(t)
	mustFill(t, m.journalConfig(path), 20, 5)
	mustAlter(t, path, "DELETE FROM rows WHERE seq = 11")
	mustAlter(t, path, "UPDATE rows SET body = zeroblob(30) WHERE seq = 12")
	j := mustOpen(t, m.journalConfig(path))
	if q := mustQuarantine(t, j); q.Lost != 2 || q.Salvaged != 18 {
		t.Fatalf("quarantined: %+v", q)
	}
	mustReadAll(t, j)
}

// TestResultCodesOfDamage: only damage sets a database aside, and not a disk that is full or fails at a write. The codes are
// those of sqlite.org/rescode.html.
func TestResultCodesOfDamage(t *testing.T) {
	for name, tc := range map[string]struct {
		code   int
		damage bool
	}{
		"SQLITE_ERROR": {1, true}, "SQLITE_CORRUPT": {11, true}, "SQLITE_NOTADB": {26, true}, "SQLITE_CORRUPT_INDEX": {779, true},
		"SQLITE_IOERR_READ": {266, true}, "SQLITE_IOERR_SHORT_READ": {522, true}, "SQLITE_IOERR_CORRUPTFS": {8458, true},
		"SQLITE_IOERR": {10, false}, "SQLITE_IOERR_WRITE": {778, false}, "SQLITE_IOERR_FSYNC": {1034, false},
		"SQLITE_PERM": {3, false}, "SQLITE_BUSY": {5, false}, "SQLITE_BUSY_RECOVERY": {261, false}, "SQLITE_LOCKED": {6, false},
		"SQLITE_NOMEM": {7, false}, "SQLITE_READONLY_DIRECTORY": {1544, false}, "SQLITE_FULL": {13, false},
		"SQLITE_CANTOPEN": {14, false}, "SQLITE_AUTH": {23, false},
	} {
		if got := journal.IsDamageCode(tc.code); got != tc.damage {
			t.Errorf("%s: damage %v", name, got)
		}
	}
}

// TestVerifyIntegrity alters rows of an open journal, as a mistake in its statements could.
func TestVerifyIntegrity(t *testing.T) {
	for statement, want := range map[string]string{
		"": "",
		"UPDATE rows SET seq = 30 WHERE seq = 20":                                      "it has row 30 where row 20 should be",
		"UPDATE rows SET body = (SELECT body FROM rows WHERE seq = 11) WHERE seq = 12": "row 12 says that it is row 11",
		"UPDATE rows SET hash = zeroblob(16) WHERE seq = 12":                           "row 12 does not fit the chain",
	} {
		m, path := newMachine(), dbPath(t)
		mustFill(t, m.journalConfig(path), 20, 5)
		cfg := m.journalConfig(path)
		cfg.Paranoid = false
		j := mustOpen(t, cfg)
		if statement != "" {
			if err := j.Execute(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.VerifyIntegrity(t.Context()); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", statement, err)
		}
	}
}

// TestDamagedFreePages: no row is on such a page, and the next ones to be written would be.
func TestDamagedFreePages(t *testing.T) {
	m, path := newMachine(), dbPath(t)
	mustFill(t, m.journalConfig(path), 20, 5)
	mustAlter(t, path, "CREATE TABLE junk AS SELECT zeroblob(100000)")
	mustAlter(t, path, "DROP TABLE junk")
	b := mustRead(t, path)
	size, first := int(binary.BigEndian.Uint16(b[16:])), int(binary.BigEndian.Uint32(b[32:]))
	if first == 0 {
		t.Fatal("the database has no free page")
	}
	binary.BigEndian.PutUint32(b[(first-1)*size+4:], 1<<30) // how many further free pages the first one lists
	mustWrite(t, path, b)
	j := mustOpen(t, m.journalConfig(path))
	if q := mustQuarantine(t, j); q.Lost != 0 || q.Salvaged != 20 {
		t.Fatalf("quarantined: %+v", q)
	}
	mustReadAll(t, j)
}

// TestDamagedRowsThatTheClusterHas are dropped with those before them; nothing is lost.
func TestDamagedRowsThatTheClusterHas(t *testing.T) {
	for _, damage := range []string{"SET body = zeroblob(30)", "SET hash = zeroblob(16)", "SET body = substr(body, 1, length(body) - 1)"} {
		m, path := newMachine(), dbPath(t)
		mustFill(t, m.journalConfig(path), 20, 10)
		j := mustOpen(t, m.journalConfig(path))
		head := j.Head()
		mustClose(t, j)
		mustAlter(t, path, "UPDATE rows "+damage+" WHERE seq = 3 OR seq = 6")
		first := fleet.Seq(7)
		if strings.Contains(damage, "hash") {
			first++ // either the row or the next one is wrong
		}
		head.First = first
		for range 2 {
			j = mustOpen(t, m.journalConfig(path))
			if q := j.Quarantined(); len(q) != 0 || !reflect.DeepEqual(j.Head(), head) {
				t.Fatalf("%s: quarantined %+v, head %+v, want %+v", damage, q, j.Head(), head)
			}
			if ts := mustReadAll(t, j); len(ts) != 21-int(first) || ts[0].Seq != first {
				t.Fatalf("%s: rows: %+v", damage, ts)
			}
			if s, ok := j.State(allocID(1)); !ok || s.ClientStatus != fleet.ClientRunning {
				t.Fatalf("%s: state: %+v", damage, s)
			}
			mustClose(t, j)
		}
	}
}

// TestADamagedNewestRow: the hash for the next row cannot be trusted.
func TestADamagedNewestRow(t *testing.T) {
	m, path := newMachine(), dbPath(t)
	mustFill(t, m.journalConfig(path), 20, 20)
	mustAlter(t, path, "UPDATE rows SET body = zeroblob(30) WHERE seq = 20")
	j := mustOpen(t, m.journalConfig(path))
	if q := mustQuarantine(t, j); q.Salvaged != 19 {
		t.Errorf("quarantined: %+v", q)
	}
	mustReadAll(t, j)
}

func TestAlteredHashIsMended(t *testing.T) {
	m, path := newMachine(), dbPath(t)
	mustFill(t, m.journalConfig(path), 20, 5)
	mustAlter(t, path, "UPDATE rows SET hash = zeroblob(16) WHERE seq = 12")
	j := mustOpen(t, m.journalConfig(path))
	if q := mustQuarantine(t, j); q.Lost != 0 || q.Salvaged != 20 || j.Head().Lost != "" {
		t.Fatalf("quarantined: %+v, head %+v", q, j.Head())
	}
	if ts := mustReadAll(t, j); len(ts) != 20 || ts[11].ClientDescription != "row 11" {
		t.Fatalf("rows: %+v", ts)
	}
}

// TestAlteredValuesAreNoticed flips bits in all stored values, which SQLite does not notice: none is accepted.
func TestAlteredValuesAreNoticed(t *testing.T) {
	alloc := " WHERE alloc = '" + string(allocID(0)) + "'"
	stopped := " WHERE alloc = '" + string(allocID(2)) + "'"
	for _, where := range []struct{ table, columns, which string }{
		{"meta", "key value", " WHERE key = 'link'"}, {"meta", "key value", " WHERE key = 'mark'"},
		{"meta", "key value", " WHERE key = 'desired'"}, {"meta", "key value", " WHERE key = 'version'"},
		{"states", "alloc body", alloc}, {"desired", "alloc body job stop mentioned", alloc},
		{"desired", "stop reason mentioned", stopped}, {"bodies", "hash job", ""}, {"handles", "alloc key handle", ""},
		{"rows", "age hash body", " WHERE seq = 4"},
	} {
		for _, column := range strings.Fields(where.columns) {
			t.Run(where.table+" "+column+where.which, func(t *testing.T) {
				sound := dbPath(t)
				m := newMachine()
				mustFill(t, m.journalConfig(sound), 6, 2)
				altered := mustFlips(t, sound, fmt.Sprintf("SELECT %s FROM %s%s", column, where.table, where.which))
				if len(altered) < 2 {
					t.Fatalf("it is too short to be altered: %v", altered)
				}
				for _, value := range altered {
					path := dbPath(t)
					mustWrite(t, path, mustRead(t, sound))
					mustAlter(t, path, fmt.Sprintf("UPDATE %s SET %s = %s%s", where.table, column, value, where.which))
					j := mustOpen(t, m.journalConfig(path))
					if len(j.Quarantined()) != 1 {
						t.Fatalf("it is altered to %s: nobody noticed", value)
					}
					if h := j.Head(); h.Last != 6 {
						t.Fatalf("it is altered to %s: rows go up to %d", value, h.Last)
					}
					if l := j.Link(); l.Session != 0 && l.Session != 12 {
						t.Fatalf("it is altered to %s: %+v", value, l)
					}
					mustClose(t, j)
				}
			})
		}
	}
}

// mustFlips returns, as SQL, the values that result from flipping some bits of a value.
func mustFlips(t testing.TB, path, query string) (altered []string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var value any
	if err := db.QueryRow(query).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	flips := func(b []byte, format string) {
		for bit := 0; bit < len(b)*8; bit += max(5, len(b)*8/9|1) {
			b := bytes.Clone(b)
			b[bit/8] ^= 1 << (bit % 8)
			altered = append(altered, fmt.Sprintf(format, b))
		}
	}
	switch v := value.(type) {
	case int64:
		for bit := 0; bit < 64; bit += 21 {
			altered = append(altered, strconv.FormatInt(v^1<<bit, 10))
		}
	case string:
		flips([]byte(v), "CAST(x'%x' AS TEXT)")
	case []byte:
		flips(v, "x'%x'")
	}
	return altered
}

// TestAnAlteredAgeIsMended: an altered age of a row does not change the machine's time.
func TestAnAlteredAgeIsMended(t *testing.T) {
	m, path := newMachine(), dbPath(t)
	mustFill(t, m.journalConfig(path), 6, 2)
	said := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	j := mustOpen(t, m.journalConfig(path))
	if err := noteHeartbeat(j, 0, said.UnixNano()); err != nil {
		t.Fatal(err)
	}
	mustClose(t, j)
	mustAlter(t, path, fmt.Sprintf("UPDATE rows SET age = age + %d WHERE seq = 6", int64(1)<<60))
	j = mustOpen(t, m.journalConfig(path))
	if q := mustQuarantine(t, j); q.Lost != 0 || q.Salvaged != 6 || j.Head().Lost != "" {
		t.Fatalf("quarantined: %+v, head %+v", q, j.Head())
	}
	if since := time.Unix(0, j.TimeFloor()).Sub(said); since < 0 || since > time.Hour {
		t.Fatalf("it takes a hub's word of just now for one of %v ago", since)
	}
}

func TestLostStateIsRebuiltFromRows(t *testing.T) {
	m, path := newMachine(), dbPath(t)
	mustFill(t, m.journalConfig(path), 20, 5)
	mustAlter(t, path, "UPDATE states SET body = zeroblob(9)")
	j := mustOpen(t, m.journalConfig(path))
	mustQuarantine(t, j)
	if s, ok := j.State(allocID(1)); !ok || s.ClientStatus != fleet.ClientRunning || s.Seq != 20 {
		t.Fatalf("state: %+v", s)
	}
}

func TestDatabaseThatIsNoDatabase(t *testing.T) {
	m, path := newMachine(), dbPath(t)
	mustFill(t, m.journalConfig(path), 20, 5)
	mustWrite(t, path, bytes.Repeat([]byte("flash "), 5000))
	cfg := m.journalConfig(path)
	cfg.Expected = true
	j := mustOpen(t, cfg)
	q := mustQuarantine(t, j)
	if h := j.Head(); q.EndUnknown || q.Lost != 20 || h.Lost == "" || h.Last != 0 {
		t.Fatalf("head: %+v of %+v", h, q)
	}
	mustRecord(t, j, status(1, fleet.ClientRunning))
	mustReadAll(t, j)
	mustClose(t, j)
	for _, f := range []string{path, path + "-wal", path + ".seen"} {
		if err := os.RemoveAll(f); err != nil {
			t.Fatal(err)
		}
	}
	j = mustOpen(t, cfg)
	q = j.Quarantined()[0]
	if h := j.Head(); !q.EndUnknown || h.Lost == "" {
		t.Fatalf("head: %+v of %+v", h, q)
	}
}

// The lost row is the first one, which no hub has.
func TestFirstRowBecomesAGap(t *testing.T) {
	m, path := newMachine(), dbPath(t)
	mustFill(t, m.journalConfig(path), 20, 0)
	mustAlter(t, path, "UPDATE rows SET body = zeroblob(30) WHERE seq = 1")
	j := mustOpen(t, m.journalConfig(path))
	defer mustClose(t, j)
	if err := j.Rebase(t.Context(), 0, nil, nil); err != nil {
		t.Fatal(err)
	}
	if ts := mustReadAll(t, j); len(ts) < 20 || ts[0].Kind != fleet.TransitionGap || ts[0].Dropped != 1 || ts[1].ClientDescription != "row 1" {
		t.Errorf("rows: %+v, want one lost, and then the second one", ts)
	}
}

// The high-water mark counts one row as well: it is lost, and there are no more.
func TestDatabaseOfOneRowThatIsNoDatabase(t *testing.T) {
	m, path := newMachine(), dbPath(t)
	mustFill(t, m.journalConfig(path), 1, 0)
	mustWrite(t, path, bytes.Repeat([]byte("flash "), 5000))
	j := mustOpen(t, m.journalConfig(path))
	defer mustClose(t, j)
	if q := mustQuarantine(t, j); q.EndUnknown || q.Lost != 1 {
		t.Errorf("quarantined %+v, want one row lost", q)
	}
}

func TestTruncatedDatabaseOpens(t *testing.T) {
	m := newMachine()
	src := dbPath(t)
	mustFill(t, m.journalConfig(src), 400, 5)
	whole := mustRead(t, src)
	for pages := 1; pages*4096 < len(whole); pages++ {
		path := dbPath(t)
		mustWrite(t, path, whole[:pages*4096-100])
		j := mustOpen(t, m.journalConfig(path))
		mustQuarantine(t, j)
		mustRecord(t, j, status(1, fleet.ClientComplete))
		mustReadAll(t, j)
		mustClose(t, j)
	}
}

// An interrupted quarantine is repeated, from each of its steps.
func TestQuarantineCutShort(t *testing.T) {
	for _, label := range []string{journal.StepQuarantine, journal.StepSalvage, journal.StepSwap} {
		t.Run(label, func(t *testing.T) {
			m, path := newMachine(), dbPath(t)
			mustFill(t, m.journalConfig(path), 20, 5)
			mustAlter(t, path, "UPDATE rows SET body = zeroblob(30) WHERE seq = 12")
			cfg := m.journalConfig(path)
			cfg.Step = func(l string) error {
				if l == label {
					return errStep
				}
				return nil
			}
			if j, err := journal.Open(cfg); err == nil {
				j.Close()
				t.Fatal("the step did not fail")
			}
			j := mustOpen(t, m.journalConfig(path))
			if ts := mustReadAll(t, j); len(ts) != 20 {
				t.Fatalf("%d rows", len(ts))
			}
		})
	}
}

// If the process dies between removing the damaged database and renaming the new one, the old log must
// not be applied to the new database.
func TestSwapIsFinished(t *testing.T) {
	m, path := newMachine(), dbPath(t)
	mustFill(t, m.journalConfig(path), 20, 5)
	if err := os.Rename(path, path+".new"); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, path+"-wal", bytes.Repeat([]byte("old"), 5000))
	j := mustOpen(t, m.journalConfig(path))
	if ts := mustReadAll(t, j); len(ts) != 20 || len(j.Quarantined()) != 0 {
		t.Fatalf("%d rows, quarantined %v", len(ts), j.Quarantined())
	}
}

func TestNewerDatabaseIsLeftAlone(t *testing.T) {
	m, path := newMachine(), dbPath(t)
	mustFill(t, m.journalConfig(path), 3, 0)
	mustAlter(t, path, "PRAGMA user_version = 3; UPDATE meta SET value = x'03', sum = NULL WHERE key = 'version'")
	before := mustRead(t, path)
	_, err := journal.Open(m.journalConfig(path))
	if fleet.CodeOf(err) != fleet.CodeVersion {
		t.Fatalf("open: %v", err)
	}
	if !bytes.Equal(before, mustRead(t, path)) {
		t.Fatal("it was changed")
	}
	if left, _ := filepath.Glob(path + ".damaged*"); len(left) != 0 {
		t.Fatal("it was taken for damaged")
	}
}

// TestAHeaderThatOnlySeemsNewer flips a bit of the version, alone and where the content's version is damaged or lost.
func TestAHeaderThatOnlySeemsNewer(t *testing.T) {
	for name, c := range map[string]struct {
		also     string
		metaLost bool // and with it what the edge has acknowledged
	}{
		"the header alone":     {},
		"the content too":      {also: "; UPDATE meta SET value = x'42' WHERE key = 'version'"},
		"the content lost it":  {also: "; DELETE FROM meta WHERE key = 'version'"},
		"the table is renamed": {also: "; ALTER TABLE meta RENAME TO mets", metaLost: true},
	} {
		t.Run(name, func(t *testing.T) {
			m, path := newMachine(), dbPath(t)
			mustFill(t, m.journalConfig(path), 20, 5)
			mustAlter(t, path, "PRAGMA user_version = 66"+c.also)
			j := mustOpen(t, m.journalConfig(path))
			if q := mustQuarantine(t, j); q.Lost != 0 || q.Salvaged != 20 || (j.Head().Lost != "") != c.metaLost {
				t.Fatalf("quarantined: %+v, head %+v", q, j.Head())
			}
			mustReadAll(t, j)
		})
	}
}

func TestDirectoryThatIsNotThere(t *testing.T) {
	m := newMachine()
	_, err := journal.Open(m.journalConfig(filepath.Join(t.TempDir(), "gone", "journal.db")))
	if fleet.CodeOf(err) != fleet.CodeForbidden {
		t.Fatalf("open: %v", err)
	}
}

// Whatever happens to a database's bytes, the journal opens, has a sound chain, and stores rows.
func FuzzDamagedDatabase(f *testing.F) {
	m := newMachine()
	src := filepath.Join(f.TempDir(), "journal.db")
	mustFill(f, m.journalConfig(src), 60, 5)
	whole := mustRead(f, src)
	f.Add(uint32(0), []byte{0})
	f.Add(uint32(18), []byte{9, 9})
	f.Add(uint32(4096), bytes.Repeat([]byte{0xff}, 512))
	f.Add(uint32(5*4096), bytes.Repeat([]byte{0}, 4096))
	f.Add(uint32(3*4096+4000), []byte("\x82\x00garbage"))
	f.Fuzz(func(t *testing.T, at uint32, damage []byte) {
		b := bytes.Clone(whole)
		copy(b[int(at)%len(b):], damage)
		path := dbPath(t)
		mustWrite(t, path, b)
		j, err := journal.Open(m.journalConfig(path))
		if err != nil {
			if fleet.CodeOf(err) == fleet.CodeVersion {
				return // the damage changed the version
			}
			t.Fatalf("open: %v", err)
		}
		defer j.Close()
		mustRecord(t, j, status(1, fleet.ClientComplete))
		mustReadAll(t, j)
	})
}

func FuzzDecodeState(f *testing.F) {
	f.Add([]byte{0xa0})
	f.Add([]byte("\xa2\x01\x67running\x04\x61b"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := journal.DecodeState(b)
		if err == nil && s.BootID == "" {
			t.Fatal("a state without a boot id was taken")
		}
	})
}
