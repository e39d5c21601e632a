package jobspec_test

import (
	"io/fs"
	"path"
	"strings"
	"testing/fstest"
)

const home = "/home/"

// texts are files with their content; "*" is what any other name has, if there is one, but
// for those at home.
type texts map[string]string

func (f texts) Read(name string) ([]byte, error) {
	text, ok := f[name]
	if !ok && !strings.HasPrefix(name, home) {
		text, ok = f["*"]
	}
	if !ok {
		return nil, fs.ErrNotExist
	}
	return []byte(text), nil
}

func (f texts) Exists(name string) (bool, error) {
	_, ok := f[name]
	return ok, nil
}

func (f texts) Match(folder, pattern string) ([]string, error) {
	all := fstest.MapFS{}
	for name, text := range f {
		all[name] = &fstest.MapFile{Data: []byte(text)}
	}
	sub, err := fs.Sub(all, folder)
	if err != nil {
		return nil, err
	}
	return fs.Glob(sub, pattern)
}

func (texts) Absolute(name string) (string, error) { return path.Join("/jobs", name), nil }
func (texts) Expand(name string) (string, error)   { return home + name, nil }
