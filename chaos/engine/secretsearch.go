package engine

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"skerry/chaos/check"
)

// Files of the first hub with the join tokens for edges and for hubs.
const (
	EdgeTokenFile = "join-token"
	HubTokenFile  = "hub-join-token"
)

const (
	// CopiesDir is the folder of a run with copies of the data of members: CopiesDir/NAME/MEMBER.
	CopiesDir = "copies"
	// diskImage is the suffix of the image of a member's disk. Its files are searched where they are mounted.
	diskImage = ".img"
	// snapshotMagic begins a snapshot of a hub's state. One byte with its version follows, and deflated records.
	snapshotMagic = "SKERRYST"
	gzipMagic     = "\x1f\x8b"
)

// SearchedWriter passes what is written to W, and searches it for secrets. It keeps the end of the text, since a secret may begin in
// one part and end in the next.
type SearchedWriter struct {
	W       io.Writer
	Marks   *SecretMarks
	Allowed []SecretKind // kinds that the text may have

	mu    sync.Mutex
	end   []byte     // guarded by mu
	found SecretKind // guarded by mu: the first one
}

// Write searches p and writes it.
func (w *SearchedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	if w.found == "" {
		w.end = append(w.end, p...)
		w.found = w.Marks.Find(w.end, w.Allowed...)
		w.end = append(w.end[:0], w.end[max(0, len(w.end)-w.Marks.Longest()):]...)
	}
	w.mu.Unlock()
	return w.W.Write(p)
}

// Found returns the kind of the first secret that was written; "": none was.
func (w *SearchedWriter) Found() SecretKind {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.found
}

// SearchReader returns the kind of the first secret in a text that is of none of the allowed kinds; "": there is none. It inflates a
// snapshot of a hub's state and a text in gzip, as far as they are whole: they may be being written.
func (m *SecretMarks) SearchReader(text io.Reader, allowed ...SecretKind) SecretKind {
	in := bufio.NewReaderSize(text, 64<<10)
	magic, _ := in.Peek(len(snapshotMagic) + 1) // a short text has neither
	text = in
	switch {
	case len(magic) > len(snapshotMagic) && string(magic[:len(snapshotMagic)]) == snapshotMagic:
		_, _ = in.Discard(len(magic))
		text = flate.NewReader(in)
	case bytes.HasPrefix(magic, []byte(gzipMagic)):
		if inflated, err := gzip.NewReader(in); err == nil {
			text = inflated
		}
	}
	w := &SearchedWriter{W: io.Discard, Marks: m, Allowed: allowed}
	_, _ = io.Copy(w, text)
	return w.Found()
}

// SearchFolder searches all files below the folder of a run for secrets in clear: the data of its members, copies of it, and logs. It
// leaves out secrets in the files that are there to have them, and files that are removed meanwhile.
func (m *SecretMarks) SearchFolder(dir string) (check.SecretSearch, error) {
	o := check.SecretSearch{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if os.IsNotExist(err) {
				return nil
			}
			return err
		}
		if !d.Type().IsRegular() || strings.HasSuffix(path, diskImage) {
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return nil //nolint:nilerr // it was removed meanwhile
		}
		defer f.Close()
		o.Files++
		name, _ := filepath.Rel(dir, path)
		if kind := m.SearchReader(f, secretsAllowedIn(name)...); kind != "" {
			o.Found = append(o.Found, fmt.Sprintf("%s: %s", name, kind))
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("search %s for secrets: %w", dir, err)
	}
	return o, err
}

// secretsAllowedIn returns the kinds of secrets that a file below the folder of a run is there to have.
func secretsAllowedIn(name string) []SecretKind {
	parts := strings.Split(name, string(filepath.Separator))
	if parts[0] == CopiesDir && len(parts) > 2 {
		parts = parts[2:]
	}
	switch {
	case len(parts) > 5 && parts[1] == "allocs" && parts[4] == "secrets": // MEMBER/allocs/ALLOC/TASK/secrets/…: for the task
		return []SecretKind{SecretVariable, SecretIdentity}
	case len(parts) == 2 && slices.Contains([]string{EdgeTokenFile, HubTokenFile}, parts[1]): // MEMBER/join-token: for machines that join
		return []SecretKind{SecretJoinToken}
	}
	return nil
}

// MarkFiles adds the secrets in the files below the folder of a run that are there to have them: join tokens, and identities of tasks.
func (m *SecretMarks) MarkFiles(dir string) {
	for pattern, add := range map[string]func(string){
		filepath.Join("*", EdgeTokenFile): m.AddJoinToken, filepath.Join("*", HubTokenFile): m.AddJoinToken,
		filepath.Join("*", "allocs", "*", "*", "secrets", "nomad_*"): m.AddIdentity, // nomad_token, and nomad_NAME.jwt
	} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			panic("engine: the pattern of a file is wrong: " + err.Error())
		}
		for _, path := range paths {
			if b, err := os.ReadFile(path); err == nil { // else it was removed meanwhile
				add(strings.TrimSpace(string(b)))
			}
		}
	}
}
