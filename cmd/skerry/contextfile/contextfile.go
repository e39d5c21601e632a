// Package contextfile has the file of an operator's contexts: for each a name, a hub's address, and what a command
// needs to reach it. cmd/skerry/command reads it, and the commands of skerry context write it. It starts no goroutine.
//
// The file is JSON with mode 0600, as it may have tokens, and is replaced as a whole.
package contextfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"

	"skerry/fleet"
	"skerry/internal/durable"
)

const (
	version = 1
	maxFile = 1 << 20 // bytes
	mode    = 0o600
)

// Context is how a command reaches a hub.
type Context struct {
	Addr       string
	CACert     string `json:",omitempty"` // PEM; "": the CAs of the system
	ServerName string `json:",omitempty"` // in the hub's certificate; "": the host of Addr
	// ClientCert and ClientKey are files, as programs may renew them. TokenFile, too, is read for each command.
	ClientCert string `json:",omitempty"`
	ClientKey  string `json:",omitempty"`
	Token      string `json:",omitempty"` // a secret
	TokenFile  string `json:",omitempty"`
}

// File has the contexts by their names.
type File struct {
	Version  int
	Current  string `json:",omitempty"` // name of the context in use; "": none
	Contexts map[string]Context
}

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// CheckName returns an error for a name that a context may not have.
func CheckName(name string) error {
	if !validName.MatchString(name) {
		return fleet.Errorf(fleet.CodeInvalid, "name a context %q: a name has letters, digits, '.', '_' and '-' only, at most 64", name)
	}
	return nil
}

// Path returns where the file is: chosen, or in the user's configuration directory; "": this user has none.
func Path(chosen string) string {
	if chosen != "" {
		return chosen
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "skerry", "contexts.json")
}

// Load reads the file; without one there are no contexts. It refuses a file that others may read.
func Load(path string) (File, error) {
	empty := File{Version: version, Contexts: map[string]Context{}}
	if path == "" {
		return empty, nil
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return empty, nil
	}
	if err != nil {
		return File{}, fleet.Errorf(fleet.CodeInvalid, "read the contexts: %w", err)
	}
	info, err := f.Stat()
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(f, maxFile+1))
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return File{}, fleet.Errorf(fleet.CodeInvalid, "read the contexts: %w", err)
	}
	if rights := info.Mode().Perm(); rights&0o077 != 0 && runtime.GOOS != "windows" {
		return File{}, fleet.Errorf(fleet.CodeForbidden, "read the contexts in %s: others may read or write it (mode %04o), and it may have tokens", path, rights).
			WithHint("make it yours alone: chmod 600 %s; if others have read it, replace its tokens", path)
	}
	file, err := decode(text)
	if err != nil {
		return File{}, fleet.Errorf(fleet.CodeInvalid, "read the contexts in %s: %w", path, err).
			WithHint("mend the file, or remove it and add the contexts again")
	}
	return file, nil
}

func decode(text []byte) (File, error) {
	if len(text) > maxFile {
		return File{}, fmt.Errorf("the file has more than %d bytes", maxFile)
	}
	var head struct{ Version int }
	if err := json.Unmarshal(text, &head); err != nil {
		return File{}, err
	}
	if head.Version != version {
		return File{}, fmt.Errorf("it has version %d, and this program knows version %d", head.Version, version)
	}
	var f File
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		return File{}, err
	}
	for name, c := range f.Contexts {
		if err := CheckName(name); err != nil {
			return File{}, err
		}
		if c.Addr == "" {
			return File{}, fmt.Errorf("context %q has no address", name)
		}
	}
	if f.Contexts == nil {
		f.Contexts = map[string]Context{}
	}
	return f, nil
}

// Find returns the context of a name.
func (f File) Find(name string) (Context, error) {
	c, ok := f.Contexts[name]
	if !ok {
		return Context{}, fleet.Errorf(fleet.CodeNotFound, "there is no context %q", name).
			WithHint("skerry context list shows the contexts, and skerry context add makes one")
	}
	return c, nil
}

// Save replaces the file, and makes its folder.
func (f File) Save(path string) error {
	if path == "" {
		return fleet.Errorf(fleet.CodeInvalid, "write the contexts: this user has no configuration directory").
			WithHint("set HOME, or name a file with --context-file")
	}
	text, err := json.MarshalIndent(f, "", "  ")
	if err == nil {
		err = durable.MakeFolders(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = durable.Replace(path, append(text, '\n'), mode)
	}
	if err != nil {
		return fleet.Errorf(fleet.CodeInvalid, "write the contexts: %w", err)
	}
	return nil
}
