package templates

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"skerry/edge/artifacts"
	"skerry/fleet"
	"skerry/fleet/template"
	"skerry/internal/durable"
)

// Versions of a rendering on the disk. Agents of older releases do not read sealed ones.
const (
	renderingVersion = 1
	sealedVersion    = 2
)

// refreshEvery is the time in seconds after which an unchanged rendering is written with its new age.
const refreshEvery = 3600

// rendering is the newest rendering of a template, as it is on the disk.
type rendering struct {
	Version int
	Digest  string // of the template block
	Text    string
	At      int64 // seconds of the edge's wall clock, for display only
	Reads   bool  // the template reads files or services, which may change
	Pending bool  // the task has not been told of it yet
	// Secret says that the template read a variable, a secret or a file of a secrets folder. On the disk Sealed then has the
	// text, encrypted by the machine.
	Secret bool   `json:",omitempty"`
	Sealed []byte `json:",omitempty"`
	// Failing says why the template could not be rendered again, and FailingSince from when on, as At; 0: it can be.
	Failing      string `json:",omitempty"`
	FailingSince int64  `json:",omitempty"`

	away string // there is no rendering, because this server has no answer now; "": none
}

// readRendering returns the newest rendering of a template. It returns false if there is none for this very block.
func (h *Hook) readRendering(b block) (rendering, bool) {
	r, ok := h.readNewest(b)
	return r, ok && r.Digest == digestOf(b.t)
}

// readNewest returns the newest rendering of a template, also of an earlier text of the block.
func (h *Hook) readNewest(b block) (rendering, bool) {
	r, ok := readRenderingFile(b.renderingPath())
	if !ok || r.Version != sealedVersion {
		return r, ok
	}
	if h.cfg.Key == nil {
		return rendering{}, false
	}
	plain, err := h.cfg.Key.Open(r.Sealed, b.boundTo())
	if err != nil {
		return rendering{}, false
	}
	r.Text, r.Sealed = string(plain), nil
	return r, true
}

// readRenderingFile reads a rendering as it is on the disk. It returns false if there is none that can be read.
func readRenderingFile(path string) (rendering, bool) {
	f, err := os.Open(path)
	if err != nil {
		return rendering{}, false
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 8*template.MaxBytes))
	if err != nil {
		return rendering{}, false
	}
	r, err := decodeRendering(text)
	return r, err == nil
}

func decodeRendering(text []byte) (rendering, error) {
	var r rendering
	if err := json.Unmarshal(text, &r); err != nil {
		return r, err
	}
	if r.Version != renderingVersion && r.Version != sealedVersion {
		return r, fmt.Errorf("it has the version %d", r.Version)
	}
	return r, nil
}

// writeRendering makes the newest rendering durable, unless the same one is on the disk already.
func (h *Hook) writeRendering(b block, r rendering) error {
	if old, ok := h.readRendering(b); ok && old.Secret == r.Secret && old.Text == r.Text && old.Reads == r.Reads && old.Pending == r.Pending && old.FailingSince == r.FailingSince && r.At-old.At < refreshEvery {
		return nil
	}
	r.Version = renderingVersion
	if r.Secret {
		if h.cfg.Key == nil {
			return fleet.Errorf(fleet.CodeUnsupported, "record the rendering of %s: this edge has no key to encrypt it", b.name)
		}
		r.Version, r.Sealed, r.Text = sealedVersion, h.cfg.Key.Seal([]byte(r.Text), b.boundTo()), ""
	}
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("record the rendering of %s: %w", b.name, err)
	}
	file := b.renderingPath()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("record the rendering of %s: %w", b.name, err)
	}
	if err := durable.Replace(file, text, 0o600); err != nil {
		return fmt.Errorf("record the rendering of %s: %w", b.name, err)
	}
	return nil
}

// withFailure returns the newest rendering with the reason why there is no newer one, unless it has one since earlier.
func (h *Hook) withFailure(last rendering, why error) rendering {
	if last.FailingSince == 0 {
		last.Failing, last.FailingSince = why.Error(), h.cfg.Now().Unix()
	}
	return last
}

// digestOf returns a hash of a template block.
func digestOf(t *fleet.Template) string {
	text, err := json.Marshal(t)
	if err != nil {
		panic("templates: a template block has no JSON: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// writeDestination replaces the file of a template as a whole. Secrets for the environment are written into a secrets folder only.
func writeDestination(b block, r rendering) error {
	p, t := b.p, b.t
	dest, err := artifacts.Destination(p, t.DestPath, "local")
	if err != nil || r.Secret && t.Envvars && !artifacts.IsSecret(dest) {
		return err
	}
	perms, err := strconv.ParseUint(t.Perms, 8, 12)
	if t.Perms == "" {
		perms, err = 0o644, nil
	}
	if err != nil {
		return fleet.Errorf(fleet.CodeInvalid, "the mode %q of %s is not octal", t.Perms, t.DestPath)
	}
	if err := artifacts.ReplaceFile(p, dest, artifacts.File{Text: r.Text, Mode: fs.FileMode(perms), Uid: t.Uid, Gid: t.Gid}); err != nil {
		return artifacts.ExplainFullSecrets(err, p, dest)
	}
	return nil
}

// parseEnv reads lines NAME=VALUE. A value may be quoted. It skips empty lines, comments and the word "export".
func parseEnv(text string) (map[string]string, error) {
	vars, n := map[string]string{}, 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || name == "" || strings.ContainsAny(name, " \t\"'") || strings.ContainsRune(line, 0) {
			return nil, fleet.Errorf(fleet.CodeInvalid, "line %d is not NAME=VALUE", n)
		}
		value, err := unquote(value)
		if err != nil {
			return nil, fleet.Errorf(fleet.CodeInvalid, "line %d: %w", n, err)
		}
		vars[name] = value
	}
	return vars, nil
}

// unquote returns a value without its quotes, or without a comment after it.
func unquote(value string) (string, error) {
	switch {
	case value == "":
		return "", nil
	case value[0] == '\'':
		inner, _, ok := strings.Cut(value[1:], "'")
		if !ok {
			return "", errors.New("a quote is not closed")
		}
		return inner, nil
	case value[0] == '"':
		quoted, err := strconv.QuotedPrefix(value)
		if err != nil {
			return "", errors.New("a quote is not closed, or holds an invalid escape")
		}
		return strconv.Unquote(quoted)
	}
	if i := strings.Index(value, " #"); i >= 0 {
		value = strings.TrimSpace(value[:i])
	}
	return value, nil
}
