package real

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skerry/chaos/engine"
)

// TestSecretsOfARealRunAreFound: a secret is found in what members wrote and on a command line, also in a compressed file, but neither in the
// files that are there to have it nor in the image of a disk.
func TestSecretsOfARealRunAreFound(t *testing.T) {
	const token, join, identity = "0f0e0d0c-1111-4222-8333-444455556666", "skr1.aGFzaA.tokenid.c2VjcmV0LW9mLWEtam9pbi10b2tlbg", "aGVhZGVy.Y2xhaW1z.c2lnbmF0dXJlLW9mLWFuLWlkZW50aXR5"
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte("a" + token))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	s := &fleetRun{Ground: Ground{Dir: t.TempDir()}, marks: engine.NewSecretMarks()}
	s.marks.AddToken(engine.SecretToken, token)
	for name, text := range map[string]string{
		"hub-1/join-token": join, "edge-1/allocs/a/main/secrets/nomad_token": identity + "\n", "copies/1m0s/hub-1/join-token": join,
		"edge-1.img": token, "edge-1/allocs/a/main/secrets/value": "mArKeD-sEcReT-3",
		"hub-1.log": "panic: " + token, "edge-2/audit/1.jsonl": identity, "edge-1/journal.db": join, "copies/1m0s/hub-1/state": "mArKeD-sEcReT-3", "report.gz": packed.String(),
	} {
		path := filepath.Join(s.Dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command("/bin/sh", "-c", "read line", filepath.Join(s.Dir, "program"), token)
	in, err := c.StdinPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	o, err := s.searchSecrets()
	if failed := failOnSecrets(o, err); !errors.Is(failed, ErrViolated) || !strings.Contains(failed.Error(), "secrets-sealed") {
		t.Errorf("the run ends with %v", failed)
	}
	_ = in.Close()
	_ = c.Wait() // it has read nothing
	slices.Sort(o.Found)
	want := []string{
		"copies/1m0s/hub-1/state: the value of a variable", "edge-1/journal.db: the secret of a join token", "edge-2/audit/1.jsonl: an identity of a task",
		"hub-1.log: the secret of an ACL token", "report.gz: the secret of an ACL token", "the command line of sh: the secret of an ACL token",
	}
	if err != nil || o.Files != 9 || !slices.Equal(o.Found, want) {
		t.Errorf("%v, %d files:\n%s", err, o.Files, strings.Join(o.Found, "\n"))
	}
}
