package edge_test

import (
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/edge/journal"
	"skerry/edge/local"
	"skerry/edge/machinekey"
	"skerry/edge/sitecodes"
	"skerry/fleet"
	"skerry/internal/sitecode"
	"skerry/syncproto"
)

// mustDeliverSiteCode leaves in a data directory what a hub's delivery of a code leaves, and returns what Ann types.
func mustDeliverSiteCode(t testing.TB, dir string, capabilities ...string) (text, id string) {
	t.Helper()
	text, id, hash, err := sitecode.Draw()
	if err != nil {
		t.Fatal(err)
	}
	key, machine := machinekey.New()
	mustWriteFile(t, filepath.Join(dir, "identity", "machine-key"), machine)
	j, err := journal.Open(journal.Config{Path: filepath.Join(dir, "journal.db"), BootID: boot1, Mono: func() time.Duration { return time.Minute }})
	if err != nil {
		t.Fatal(err)
	}
	k, err := sitecodes.Open(sitecodes.Config{Journal: j, Sealer: key, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Accept(t.Context(), []syncproto.DeliveredSiteCode{{
		ID: id, ModifyIndex: 1, Name: "Ann", Capabilities: capabilities, Salt: hash.Salt, Hash: hash.Hash, Rounds: hash.Rounds, Expires: time.Now().Add(time.Hour).Unix(),
	}}); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return text, id
}

// TestSiteCodesOnSite: without a link, after a reboot, a person does with a code what it allows and nothing else, and the
// audit, the journal and the held allocation name the person. A wrong code does nothing, and is in the audit.
func TestSiteCodesOnSite(t *testing.T) {
	dir := mustEnrolled(t, shop)
	text, id := mustDeliverSiteCode(t, dir, fleet.SiteMayRead, fleet.SiteMayWrite)
	l := mustStart(t, config(dir, nil, io.Discard))
	mustRecover(t, l)
	ann := l.Client.WithSiteCode(text)
	if err := ann.Stop(t.Context(), local.StopRequest{Alloc: shop, Reason: "it smokes"}); err != nil {
		t.Fatal(err)
	}
	s, err := ann.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	who := "Ann (site code " + id + ")"
	if i := slices.IndexFunc(s.Allocs, func(a local.Alloc) bool { return a.ID == shop }); i < 0 || s.Allocs[i].Held == nil || s.Allocs[i].Held.By != who {
		t.Errorf("the allocations are %+v", s.Allocs)
	}
	_, err = ann.Exec(t.Context(), local.ExecRequest{Alloc: shop, Task: "t", Command: []string{"sh"}}, fleet.Exec{
		Stdin: io.NopCloser(strings.NewReader("")), Stdout: io.Discard, Stderr: io.Discard,
	})
	if fleet.CodeOf(err) != fleet.CodeForbidden || !strings.Contains(err.Error(), `"exec"`) || local.NeedsSiteCode(err) {
		t.Errorf("a command without its capability: %v", err)
	}
	wrong := l.Client.WithSiteCode("zzzz-zzzz-zzzz")
	if _, err := wrong.Start(t.Context(), shop, ""); fleet.CodeOf(err) != fleet.CodeForbidden {
		t.Errorf("a wrong code: %v", err)
	}
	var got []string
	for _, a := range mustActions(t, l) {
		got = append(got, strings.TrimPrefix(a.Verb+" "+a.Object, "stop "+string(shop))+"/"+a.Person+"/"+a.SiteCode+"/"+string(a.Code))
	}
	if want := []string{"/Ann/" + id + "/", "site code exec/Ann/" + id + "/forbidden", "site code ///forbidden"}; !slices.Equal(got, want) {
		t.Errorf("the audit has %q, not %q", got, want)
	}
	rows, err := l.History(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(rows, func(r fleet.Transition) bool { return strings.Contains(r.Message, who+": stop") }) {
		t.Error("no row of the journal names the person")
	}
}

// TestRequiredSiteCodes: an edge that requires a code serves nobody but root without one. Others do not need one.
func TestRequiredSiteCodes(t *testing.T) {
	dir := mustEnrolled(t, shop)
	text, _ := mustDeliverSiteCode(t, dir, fleet.SiteMayRead)
	for _, required := range []bool{false, true} {
		cfg := config(dir, nil, io.Discard)
		cfg.RequireSiteCode = required
		l := mustStart(t, cfg)
		mustRecover(t, l)
		door := l.Edge.Agent().(local.Doorkeeper)
		_, err := door.Admit(t.Context(), "", fleet.SiteMayRead) // by nobody whom the kernel names
		if (fleet.CodeOf(err) == fleet.CodeForbidden) != required {
			t.Errorf("required %t: %v", required, err)
		}
		if _, err := door.Admit(t.Context(), text, fleet.SiteMayRead); err != nil {
			t.Errorf("required %t: with a code: %v", required, err)
		}
		if _, err := door.Admit(t.Context(), text, fleet.SiteMayWrite); fleet.CodeOf(err) != fleet.CodeForbidden {
			t.Errorf("required %t: more than the code allows: %v", required, err)
		}
		if err := l.stop(); err != nil {
			t.Fatal(err)
		}
	}
}
