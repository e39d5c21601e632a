package record_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"skerry/drivers/record"
	"skerry/internal/durable"
)

// note is a record with one bound.
type note struct {
	Version int `json:"version"`
}

func (n *note) ValidateRecord() error {
	if n.Version != 1 {
		return errors.New("another version")
	}
	return nil
}

func TestRecords(t *testing.T) {
	dir := t.TempDir()
	if err := record.Write(durable.Replace, dir, "good", note{Version: 1}); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"empty": "", "torn": `{"version":`, "later": `{"version":2}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "large"), append(make([]byte, record.Max), []byte(`{"version":1}`)...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name       string
		read, none bool
	}{
		{"good", true, false}, {"missing", false, true}, {"empty", false, true}, {"torn", false, true},
		{"later", false, true}, {"large", false, true}, {"folder", false, false},
	} {
		var n note
		err := record.Read(dir, tt.name, &n)
		if (err == nil) != tt.read || errors.Is(err, record.ErrNone) != tt.none {
			t.Errorf("%s: %+v, %v", tt.name, n, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var n note
		if err := record.Decode(b, &n); err == nil && n.Version != 1 {
			t.Fatalf("%+v is valid", n)
		}
	})
}
