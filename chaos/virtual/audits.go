package virtual

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"skerry/api"
	"skerry/chaos/check"
	"skerry/internal/hashchain"
)

// observeAnswer records the answer to a change that a user asked for.
func (r *run) observeAnswer(a check.Answer) {
	if r.s.Access {
		r.judgeAndRecord(check.Observation{Answer: &a})
	}
}

// observeAudits records the audits of all hubs, from their files.
func (r *run) observeAudits() {
	if !r.s.Access {
		return
	}
	for _, h := range r.c.Hubs {
		a := check.Audit{Hub: h.Name}
		if err := readAudit(filepath.Join(h.Dir, "audit"), &a); err != nil {
			a.Broken = err.Error()
		}
		r.judgeAndRecord(check.Observation{Audit: &a})
	}
}

// readAudit reads the entries of changes from the files of an audit. The error says why the chain of its lines does not
// verify.
func readAudit(dir string, into *check.Audit) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return err
	}
	slices.SortFunc(files, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }) // their names are numbers
	var before api.AuditEntry
	hash := ""
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		err = readAuditFile(f, func(line []byte, e api.AuditEntry) error {
			if e.Seq != before.Seq+1 || e.Prev != hash {
				return fmt.Errorf("entry %d does not follow entry %d", e.Seq, before.Seq)
			}
			before, hash = e, hashchain.Hash(line)
			if e.Verb != http.MethodGet {
				into.Entries = append(into.Entries, check.AuditEntry{Verb: e.Verb, Object: e.Object, Status: e.Status, Index: e.Index})
			}
			return nil
		})
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(path), err)
		}
	}
	return nil
}

// readAuditFile calls do with each line of a file of an audit, without its end, and with the entry in it.
func readAuditFile(r io.Reader, do func(line []byte, e api.AuditEntry) error) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the last line is not whole: %w", err)
		}
		line = bytes.TrimSuffix(line, []byte{'\n'})
		var e api.AuditEntry
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		if err := do(line, e); err != nil {
			return err
		}
	}
}
