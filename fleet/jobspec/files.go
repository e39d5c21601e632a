package jobspec

import (
	"encoding/base64"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"skerry/fleet"
)

// Files gives HCL's file functions access to files. The caller chooses the folder of relative
// names; the command line uses that of the job file.
type Files interface {
	// Read returns a file's content.
	Read(name string) ([]byte, error)
	// Exists reports whether there is a file; it is an error where it is a folder.
	Exists(name string) (bool, error)
	// Match lists the files below a folder that a pattern names, by their names from there.
	Match(folder, pattern string) ([]string, error)
	// Absolute and Expand return a name from the root on, and one whose ~ is replaced.
	Absolute(name string) (string, error)
	Expand(name string) (string, error)
}

// noFiles has no file: a hub reads none for its clients.
type noFiles struct{}

var errNoFiles = errors.New("files cannot be read here: parse the job file where they are")

func (noFiles) Read(string) ([]byte, error)            { return nil, errNoFiles }
func (noFiles) Exists(string) (bool, error)            { return false, errNoFiles }
func (noFiles) Match(string, string) ([]string, error) { return nil, errNoFiles }
func (noFiles) Absolute(string) (string, error)        { return "", errNoFiles }
func (noFiles) Expand(string) (string, error)          { return "", errNoFiles }

// fileFunctions are those that look at files.
func fileFunctions(files Files) map[string]function.Function {
	if files == nil {
		files = noFiles{}
	}
	return map[string]function.Function{
		"file": textFunc(func(name string) (string, error) { return readText(files, name) }),
		"filebase64": textFunc(func(name string) (string, error) {
			b, err := readBounded(files, name)
			return base64.StdEncoding.EncodeToString(b), err
		}),
		"abspath":    textFunc(files.Absolute),
		"pathexpand": textFunc(files.Expand),
		"fileexists": function.New(&function.Spec{
			Params: []function.Parameter{{Name: "name", Type: cty.String}},
			Type:   function.StaticReturnType(cty.Bool),
			Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
				there, err := files.Exists(args[0].AsString())
				return cty.BoolVal(there), err
			},
		}),
		"fileset": function.New(&function.Spec{
			Params: []function.Parameter{{Name: "folder", Type: cty.String}, {Name: "pattern", Type: cty.String}},
			Type:   function.StaticReturnType(cty.Set(cty.String)),
			Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
				names, err := files.Match(args[0].AsString(), args[1].AsString())
				if err != nil || len(names) == 0 {
					return cty.SetValEmpty(cty.String), err
				}
				set := make([]cty.Value, len(names))
				for i, name := range names {
					set[i] = cty.StringVal(name)
				}
				return cty.SetVal(set), nil
			},
		}),
	}
}

func readText(files Files, name string) (string, error) {
	b, err := readBounded(files, name)
	if err == nil && !utf8.Valid(b) {
		err = fmt.Errorf("read %s: not text: filebase64 reads it", name)
	}
	return string(b), err
}

func readBounded(files Files, name string) ([]byte, error) {
	b, err := files.Read(name)
	if err == errNoFiles {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(b) > fleet.MaxJobSize {
		return nil, fmt.Errorf("read %s: more than %d bytes", name, fleet.MaxJobSize)
	}
	return b, nil
}
