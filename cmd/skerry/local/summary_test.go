package local_test

import (
	"strings"
	"testing"
	"time"

	onsite "skerry/cmd/skerry/local"
	"skerry/edge/local"
	"skerry/fleet"
)

func allocOf(status, desired string, tasks ...fleet.TaskState) local.Alloc {
	a := local.Alloc{ClientStatus: status, Desired: desired, Tasks: map[string]fleet.TaskState{}}
	for i, t := range tasks {
		a.Tasks[string(rune('a'+i))] = t
	}
	return a
}

// The first line of the status is for people in front of the machine.
func TestSummary(t *testing.T) {
	now := time.Date(2026, 8, 1, 7, 43, 0, 0, time.Local)
	runs, waits := fleet.TaskState{State: fleet.TaskRunning}, fleet.TaskState{State: fleet.TaskPending}
	done, broke := fleet.TaskState{State: fleet.TaskDead}, fleet.TaskState{State: fleet.TaskDead, Failed: true}
	for want, s := range map[string]local.Status{
		"No link to the hubs since 05:33 (2 h 10 min). 2 of 3 tasks run. 14 events wait to be sent.": {
			Enrolled: true, Link: local.Link{State: "waiting", Away: 2*time.Hour + 10*time.Minute}, Journal: local.Journal{Unacknowledged: 14},
			Allocs: []local.Alloc{
				allocOf(fleet.ClientRunning, fleet.DesiredRun, runs, runs, waits, done),
				allocOf(fleet.ClientComplete, fleet.DesiredStop, done), allocOf(fleet.ClientFailed, fleet.DesiredRun, broke),
			},
		},
		"No link to the hubs since 2026-07-29 07:43 (3 days 0 h). 1 of 2 tasks runs. 1 event waits to be sent.": {
			Enrolled: true, Link: local.Link{State: "connecting", Away: 72 * time.Hour}, Journal: local.Journal{Unacknowledged: 1},
			Allocs: []local.Alloc{allocOf(fleet.ClientRunning, fleet.DesiredRun, runs), allocOf("", fleet.DesiredRun)},
		},
		"Connected to the hubs. The one task runs.": {
			Enrolled: true, Link: local.Link{State: "connected", Away: time.Second}, Allocs: []local.Alloc{allocOf(fleet.ClientRunning, fleet.DesiredRun, runs)},
		},
		"Connected to the hubs. 1 of 2 tasks runs. 1 allocation is stopped on site.": {
			Enrolled: true, Link: local.Link{State: "connected"}, Allocs: []local.Alloc{
				allocOf(fleet.ClientRunning, fleet.DesiredRun, runs, waits),
				{ClientStatus: fleet.ClientRunning, Desired: fleet.DesiredRun, BetweenLaunches: true, Tasks: map[string]fleet.TaskState{"a": waits}},
				{ClientStatus: fleet.ClientPending, Desired: fleet.DesiredRun, Held: &fleet.Hold{}, Tasks: map[string]fleet.TaskState{"a": waits}},
			},
		},
		"No hub has admitted this machine yet. No task has to run here.": {Link: local.Link{State: "enrolling"}},
		"No hub has answered yet. No task has to run here.":              {Enrolled: true, Link: local.Link{State: "connecting"}},
		"The hubs refuse this machine: a clone. No task has to run here. The disk is full: free some space (3 of 8 MiB that the agent keeps for this are left).": {
			Enrolled: true, Link: local.Link{State: "fenced", Fenced: "a clone"}, Disk: local.Disk{Full: true, Reserve: 3 << 20, Reserved: 8 << 20},
		},
		"Connected to the hubs. No task has to run here. New allocations wait: the disk of the data directory has too little free space (12 MiB).": {
			Enrolled: true, Link: local.Link{State: "connected"},
			Disk: local.Disk{Free: 12 << 20, NoNewAllocs: "the disk of the data directory has too little free space"},
		},
	} {
		if got := onsite.Summary(s, now); got != want {
			t.Errorf("it says\n%s\nwant\n%s", got, want)
		}
	}
}

// An expired token is in the note of its allocation; nothing else is wrong with it.
func TestNoteOfExpiredIdentity(t *testing.T) {
	now := time.Date(2026, 8, 1, 7, 43, 0, 0, time.Local)
	past, future := now.Add(-2*time.Hour), now.Add(time.Second)
	a := local.Alloc{Identities: []local.Identity{{Task: "web", Name: "aws", Expires: &past}, {Task: "web", Name: "vault", Expires: &future}, {Task: "web", Name: "default"}}}
	if got, want := onsite.Note(a, now), "identity aws of web expired 2h0m ago"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
}

// TestStatusHidesEndedAllocs shows the allocations that have not ended, and says how many others there are.
func TestStatusHidesEndedAllocs(t *testing.T) {
	named := func(name, status string) local.Alloc {
		a := allocOf(status, fleet.DesiredRun)
		a.Name = name
		return a
	}
	runs, ended := named("web[0]", fleet.ClientRunning), named("print[0]", fleet.ClientComplete)
	failed := named("web[1]", fleet.ClientFailed)
	for name, tc := range map[string]struct {
		allocs []local.Alloc
		all    bool
		shown  string // names
		says   string
	}{
		"one has ended":     {[]local.Alloc{runs, ended}, false, "web[0]", "\n\n1 allocation that ended not shown; use --all to show them.\n"},
		"all have ended":    {[]local.Alloc{failed, ended}, false, "", "\n\n2 allocations that ended not shown; use --all to show them.\n"},
		"all are asked for": {[]local.Alloc{runs, failed, ended}, true, "web[0] web[1] print[0]", ""},
		"none has ended":    {[]local.Alloc{runs}, false, "web[0]", ""},
	} {
		text := onsite.StatusText(local.Status{Enrolled: true, Allocs: tc.allocs}, tc.all, false, time.Now())
		for _, a := range []local.Alloc{runs, failed, ended} {
			if strings.Contains(text, a.Name) != strings.Contains(tc.shown, a.Name) {
				t.Errorf("%s: shown, or not shown, is %s:\n%s", name, a.Name, text)
			}
		}
		if !strings.HasSuffix(text, tc.says) || tc.says == "" && strings.Contains(text, "not shown") || strings.Contains(text, "ALLOCATION") != (tc.shown != "") {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}
