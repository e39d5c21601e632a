package local_test

import (
	"strings"
	"testing"
	"time"

	onsite "skerry/cmd/skerry/local"
	"skerry/edge/local"
	"skerry/fleet"
)

// TestStatusShowsTheAgeOfCopies shows rendered templates that cannot be rendered again, without a link the variables, and everything
// when it is asked for.
func TestStatusShowsTheAgeOfCopies(t *testing.T) {
	now := time.Date(2026, 11, 30, 7, 10, 0, 0, time.Local)
	since, soon := now.Add(-97*time.Minute), now.Add(time.Hour)
	runs := allocOf(fleet.ClientRunning, fleet.DesiredRun, fleet.TaskState{State: fleet.TaskRunning})
	runs.ID = "1d697ed5-1111"
	runs.Templates = []fleet.KeptTemplate{
		{Task: "web", Name: "template 1 (local/a)", Rendered: now.Add(-2 * time.Hour)},
		{Task: "web", Name: "template 2 (local/b)", Rendered: now.Add(-2 * time.Hour), Failing: "the services are away", Since: &since},
	}
	runs.Variables = []fleet.VariableMeta{
		{Path: "nomad/jobs/web", ModifyTime: now.Add(-28 * time.Hour).UnixNano()}, {Path: "nomad/jobs", ModifyIndex: 7},
	}
	runs.Identities = []local.Identity{
		{Task: "web", Name: "aws", Issued: since, Expires: &since}, {Task: "web", Name: "vault", Issued: since, Expires: &soon, Offline: true}, {Name: "default", Issued: soon},
	}
	ended := allocOf(fleet.ClientComplete, fleet.DesiredRun)
	ended.ID, ended.Templates = "eeeeeeee-2222", runs.Templates
	const (
		fails  = "1d697ed5  web        template 2 (local/b)     rendered 2h0m ago; cannot be rendered since 2026-11-30 05:33:00: the services are away\n"
		stored = "variable nomad/jobs/web  of 2026-11-29 03:10:00 (1d4h old)\n"
		older  = "variable nomad/jobs      of index 7; the hub has not said when it was stored\n"
		works  = "1d697ed5  web        template 1 (local/a)     rendered 2h0m ago\n"
		gone   = "identity aws             of 2026-11-30 05:33:00 (1h37m old), expired at 2026-11-30 05:33:00\n"
		own    = "identity vault           of 2026-11-30 05:33:00 (1h37m old), signed by this edge, valid until 2026-11-30 08:10:00\n"
		future = "the group  identity default         of 2026-11-30 08:10:00\n"
	)
	for name, c := range map[string]struct {
		link    string
		all     bool
		shown   []string
		missing []string
	}{
		"with a link":        {"connected", false, []string{"template 2 (local/b)", "cannot be rendered since"}, []string{"template 1", "variable", "identity vault", "eeeeeeee"}},
		"without a link":     {"waiting", false, []string{"template 2 (local/b)", "variable nomad/jobs/web", "variable nomad/jobs "}, []string{"template 1", "identity vault", "eeeeeeee"}},
		"all are asked for":  {"connected", true, []string{fails, stored, older, works, gone, own, future}, []string{"eeeeeeee"}},
		"all without a link": {"waiting", true, []string{fails, stored, older, works, gone, own, future}, []string{"eeeeeeee"}},
	} {
		text := onsite.StatusText(local.Status{Enrolled: true, Link: local.Link{State: c.link}, Allocs: []local.Alloc{runs, ended}}, false, c.all, now)
		for _, want := range c.shown {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is not shown:\n%s", name, want, text)
			}
		}
		for _, not := range c.missing {
			if strings.Contains(text, not) {
				t.Errorf("%s: %q is shown:\n%s", name, not, text)
			}
		}
	}
	runs.Templates, runs.Variables = runs.Templates[:1], nil
	if text := onsite.StatusText(local.Status{Allocs: []local.Alloc{runs}}, false, false, now); strings.Contains(text, "COPY") {
		t.Errorf("nothing is old, and it shows\n%s", text)
	}
}
