package contextfile_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"skerry/cmd/skerry/contextfile"
	"skerry/fleet"
)

func TestContextsAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "contexts.json")
	empty, err := contextfile.Load(path)
	if err != nil || len(empty.Contexts) != 0 {
		t.Fatalf("without a file: %+v, %v", empty, err)
	}
	empty.Contexts["prod"] = contextfile.Context{
		Addr: "https://hub:4646", CACert: "pem", ServerName: "hub", ClientCert: "/c", ClientKey: "/k", Token: "secret", TokenFile: "/t",
	}
	empty.Current = "prod"
	if err := empty.Save(path); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its mode: %v, %v", info, err)
	}
	if kept, err := contextfile.Load(path); err != nil || !reflect.DeepEqual(kept, empty) {
		t.Errorf("kept: %+v, %v", kept, err)
	}
	if _, err := empty.Find("test"); fleet.CodeOf(err) != fleet.CodeNotFound {
		t.Errorf("another name: %v", err)
	}
}

func TestFilesThatAreRefused(t *testing.T) {
	good := `{"Version":1,"Contexts":{"prod":{"Addr":"https://hub","Token":"s3cret"}}}`
	for name, try := range map[string]struct {
		text string
		mode os.FileMode
		code fleet.Code
		says string
	}{
		"readable by all":      {good, 0o644, fleet.CodeForbidden, "chmod 600"},
		"writable by a group":  {good, 0o620, fleet.CodeForbidden, "mode 0620"},
		"of a newer release":   {`{"Version":2,"Kept":{}}`, 0o600, fleet.CodeInvalid, "version 2"},
		"no JSON":              {"prod = https://hub", 0o600, fleet.CodeInvalid, "invalid character"},
		"a field that is none": {strings.Replace(good, "Token", "Tokn", 1), 0o600, fleet.CodeInvalid, `"Tokn"`},
		"a name that is none":  {strings.Replace(good, "prod", "a b", 1), 0o600, fleet.CodeInvalid, `"a b"`},
		"no address":           {`{"Version":1,"Contexts":{"prod":{}}}`, 0o600, fleet.CodeInvalid, "no address"},
		"without an end":       {good + strings.Repeat(" ", 2<<20), 0o600, fleet.CodeInvalid, "more than"},
	} {
		path := filepath.Join(t.TempDir(), "contexts.json")
		if err := os.WriteFile(path, []byte(try.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, try.mode); err != nil {
			t.Fatal(err)
		}
		_, err := contextfile.Load(path)
		if fleet.CodeOf(err) != try.code || !strings.Contains(err.Error(), try.says) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (contextfile.File{}).Save(""); err == nil || !strings.Contains(err.Error(), "HOME") {
		t.Errorf("a user without a folder: %v", err)
	}
}

// FuzzLoad feeds files: each is refused, or kept as it is.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(`{"Version":1,"Current":"a","Contexts":{"a":{"Addr":"x"}}}`))
	f.Add([]byte(`{"Version":1,"Contexts":null}`))
	f.Add([]byte(`[]`))
	path := filepath.Join(f.TempDir(), "contexts.json")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		read, err := contextfile.Load(path)
		if err != nil {
			return
		}
		if err := read.Save(path); err != nil {
			t.Fatal(err)
		}
		if again, err := contextfile.Load(path); err != nil || !reflect.DeepEqual(again, read) {
			t.Fatalf("%+v became %+v, %v", read, again, err)
		}
	})
}
