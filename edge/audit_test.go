package edge_test

import (
	"encoding/json"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"skerry/edge/local"
	"skerry/fleet"
)

// mustActions returns the lines of the edge's audit.
func mustActions(t testing.TB, l *runningEdge) (actions []fleet.SiteAction) {
	t.Helper()
	from, err := l.Audit(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	for lines := json.NewDecoder(from); ; {
		var a fleet.SiteAction
		if err := lines.Decode(&a); err == io.EOF {
			return actions
		} else if err != nil {
			t.Fatal(err)
		}
		actions = append(actions, a)
	}
}

// TestActionsOnSiteAreAudited: what people do by the socket is in the audit with who, why and the refusal, and in the
// journal; what they only look at is not. A damaged audit does not keep the agent from starting.
func TestActionsOnSiteAreAudited(t *testing.T) {
	dir := mustEnrolled(t, shop)
	l := mustStart(t, config(dir, nil, io.Discard))
	mustRecover(t, l)
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Stop(t.Context(), local.StopRequest{Alloc: shop[:8], Reason: "it smokes"}); err != nil {
		t.Fatal(err)
	}
	if err := l.Stop(t.Context(), local.StopRequest{Alloc: "ffff", Reason: "a mistake"}); fleet.CodeOf(err) != fleet.CodeNotFound {
		t.Fatal(err)
	}
	if _, err := l.Start(t.Context(), shop, "it is out"); err != nil {
		t.Fatal(err)
	}
	// This runner can neither restart its task nor run a command.
	_ = l.Restart(t.Context(), shop, "t", "")
	_, _ = l.Exec(t.Context(), local.ExecRequest{Alloc: shop, Task: "t", Command: []string{"sh", "-c", "s3cret"}}, fleet.Exec{
		Stdin: io.NopCloser(strings.NewReader("")), Stdout: io.Discard, Stderr: io.Discard,
	})
	if _, err := l.Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range mustActions(t, l) {
		got = append(got, a.Verb+" "+strings.TrimPrefix(a.Object, string(shop))+" "+a.Reason+" "+string(a.Code))
		if a.UID != me.Uid || a.User != me.Username {
			t.Errorf("%s: by %q, %q", a.Verb, a.User, a.UID)
		}
	}
	want := []string{"stop  it smokes ", "stop ffff a mistake not_found", "start  it is out "}
	if len(got) < 5 || strings.Join(got[:3], "|") != strings.Join(want, "|") || !strings.HasPrefix(got[3], "restart /t ") || !strings.HasPrefix(got[4], "exec /t sh ") {
		t.Errorf("the audit has %q", got)
	}
	for _, a := range got[3:] {
		if strings.Contains(a, "s3cret") {
			t.Errorf("the arguments of a command are in %q", a)
		}
	}
	rows, err := l.History(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	journaled := 0
	for _, r := range rows {
		if r.Site != nil {
			journaled++
		}
	}
	if journaled != len(got) {
		t.Errorf("%d of %d lines are journaled", journaled, len(got))
	}
	if err := l.stop(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "audit", "00000000000000000001.jsonl")
	if err := os.WriteFile(file, []byte("damaged\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l = mustStart(t, config(dir, nil, io.Discard))
	if actions := mustActions(t, l); len(actions) != 1 || actions[0].Verb != fleet.SiteAuditDamaged || !strings.HasPrefix(actions[0].Object, "audit.damaged-") {
		t.Errorf("after the damage the audit has %+v", actions)
	}
}
