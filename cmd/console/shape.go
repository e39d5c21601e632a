package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/template"

	"skerry/fleet"
)

// maxShaped bounds what is put through a template, in bytes.
const maxShaped = 256 << 20

// Shaper takes JSON and writes it through a Go template.
type Shaper struct {
	to   io.Writer
	tmpl *template.Template
	text bytes.Buffer
}

// NewShaper reads the template. Fields are named as in the JSON; the function json
// writes a value as JSON.
func NewShaper(to io.Writer, text string) (*Shaper, error) {
	asJSON := func(v any) (string, error) {
		b, err := json.Marshal(v)
		return string(b), err
	}
	t, err := template.New("template").Option("missingkey=error").Funcs(template.FuncMap{"json": asJSON}).Parse(text)
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "read the template: %w", err)
	}
	return &Shaper{to: to, tmpl: t}, nil
}

// Write keeps JSON for Close, at most 256 MiB.
func (s *Shaper) Write(b []byte) (int, error) {
	if s.text.Len()+len(b) > maxShaped {
		return 0, fleet.Errorf(fleet.CodeInvalid, "use the template: the output has more than %d MiB", maxShaped>>20)
	}
	return s.text.Write(b)
}

// Close writes what came so far.
func (s *Shaper) Close() error {
	dec := json.NewDecoder(&s.text)
	dec.UseNumber()
	for {
		var v any
		if err := dec.Decode(&v); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fleet.Errorf(fleet.CodeUnsupported, "use the template: this command writes no JSON")
		}
		if err := s.tmpl.Execute(s.to, v); err != nil {
			return fleet.Errorf(fleet.CodeInvalid, "use the template: %w", err)
		}
		if _, err := fmt.Fprintln(s.to); err != nil {
			return err
		}
	}
}
