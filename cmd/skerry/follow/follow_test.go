package follow

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"skerry/api"
	"skerry/cmd/console"
	"skerry/fleet"
)

// TestWhatHasEndedIsComplete checks the last line of job run and job dispatch: a batch job whose allocations have
// completed is called complete, and not running.
func TestWhatHasEndedIsComplete(t *testing.T) {
	alloc := func(status string) api.AllocStub {
		return api.AllocStub{DesiredStatus: fleet.DesiredRun, ClientStatus: status, JobVersion: 3}
	}
	retired := alloc(fleet.ClientFailed)
	retired.Retired = true
	for _, tc := range []struct {
		kind   string
		allocs []api.AllocStub
		want   string
	}{
		{fleet.JobTypeBatch, []api.AllocStub{alloc(fleet.ClientComplete), alloc(fleet.ClientComplete)}, `Job "j" is complete, version 3.`},
		{fleet.JobTypeSysBatch, []api.AllocStub{alloc(fleet.ClientComplete)}, `Job "j" is complete, version 3.`},
		{fleet.JobTypeBatch, []api.AllocStub{alloc(fleet.ClientComplete), retired}, `Job "j" is complete, version 3.`},
		{fleet.JobTypeBatch, []api.AllocStub{alloc(fleet.ClientComplete), alloc(fleet.ClientRunning)}, `Job "j" runs, version 3.`},
		{fleet.JobTypeService, []api.AllocStub{alloc(fleet.ClientRunning)}, `Job "j" runs, version 3.`},
	} {
		f := &followedJob{job: &fleet.Job{ID: "j", Type: tc.kind, Version: 3}, eval: &fleet.Evaluation{}, allocs: tc.allocs}
		if got := f.endSummary(); got != tc.want {
			t.Errorf("%s: %s", tc.kind, got)
		}
	}
}

// TestFollowedToCompletion follows a job whose allocation has completed before job run reads it: a batch or sysbatch job
// is done, and a service job is not.
func TestFollowedToCompletion(t *testing.T) {
	for kind, done := range map[string]bool{
		fleet.JobTypeBatch: true, fleet.JobTypeSysBatch: true, fleet.JobTypeService: false, fleet.JobTypeSystem: false,
	} {
		f := &followedJob{
			job:    &fleet.Job{ID: "j", Type: kind, TaskGroups: []fleet.TaskGroup{{Name: "g", Count: 1}}},
			eval:   &fleet.Evaluation{},
			allocs: []api.AllocStub{{TaskGroup: "g", DesiredStatus: fleet.DesiredRun, ClientStatus: fleet.ClientComplete}},
		}
		if over, err := f.checkRunning(); over != done || err != nil {
			t.Errorf("%s: over %v, %v", kind, over, err)
		}
	}
}

// TestFollowedWithoutANode follows a job for every node while no node suits it, or suits its newest version: there is nothing
// to wait for.
func TestFollowedWithoutANode(t *testing.T) {
	older := []api.AllocStub{{TaskGroup: "g", DesiredStatus: fleet.DesiredStop, ClientStatus: fleet.ClientComplete, JobVersion: 1}}
	for kind, done := range map[string]bool{
		fleet.JobTypeBatch: false, fleet.JobTypeSysBatch: true, fleet.JobTypeService: false, fleet.JobTypeSystem: true,
	} {
		for _, allocs := range [][]api.AllocStub{nil, older} {
			f := &followedJob{
				job:  &fleet.Job{ID: "j", Type: kind, Version: 2, TaskGroups: []fleet.TaskGroup{{Name: "g", Count: 1}}},
				eval: &fleet.Evaluation{}, allocs: allocs,
			}
			over, err := f.checkRunning()
			if over != done || err != nil || done != strings.Contains(f.endSummary(), "No node suits it now") {
				t.Errorf("%s: over %v, %v, %s", kind, over, err, f.endSummary())
			}
		}
	}
}

// TestFollowedBeforeItsTurn follows a job for every node whose newest version is placed when the older one has stopped, or when a
// node has room: there is something to wait for.
func TestFollowedBeforeItsTurn(t *testing.T) {
	older := func(status string) []api.AllocStub {
		return []api.AllocStub{{TaskGroup: "g", DesiredStatus: fleet.DesiredStop, ClientStatus: status, JobVersion: 1}}
	}
	for name, f := range map[string]followedJob{
		"the older one stops":            {eval: &fleet.Evaluation{}, allocs: older(fleet.ClientRunning)},
		"the older one is away":          {eval: &fleet.Evaluation{}, allocs: older(fleet.ClientUnknown)},
		"it waits for room":              {eval: &fleet.Evaluation{}, allocs: older(fleet.ClientComplete), blocked: &fleet.Evaluation{AwaitsRoom: map[string]int{"g": 1}}},
		"room came, and it is evaluated": {eval: &fleet.Evaluation{BlockedEval: "b"}, allocs: older(fleet.ClientComplete)},
	} {
		f.job = &fleet.Job{ID: "j", Type: fleet.JobTypeSysBatch, Version: 2, TaskGroups: []fleet.TaskGroup{{Name: "g", Count: 1}}}
		if over, err := f.checkRunning(); over || err != nil {
			t.Errorf("%s: over, %v", name, err)
		}
	}
}

// TestFollowedOverRoom follows a job whose newest evaluation finds no node for some allocations: job run waits on if
// room is made for them, and ends with an error if no stop makes room.
func TestFollowedOverRoom(t *testing.T) {
	full := map[string]*fleet.AllocMetric{"web": {NodesEvaluated: 1, NodesExhausted: 1, DimensionExhausted: map[string]int{"network: reserved port collision http=80": 1}}}
	first := &fleet.Evaluation{ID: "e1", BlockedEval: "b1", FailedTGAllocs: full}
	for name, tc := range map[string]struct {
		eval, blocked *fleet.Evaluation
		waits         bool
	}{
		"a port that another job holds":  {first, &fleet.Evaluation{ID: "b1", FailedTGAllocs: full}, true},
		"one that an older version held": {first, &fleet.Evaluation{ID: "b1", AwaitsRoom: map[string]int{"web": 1}}, false},
		"both":                           {first, &fleet.Evaluation{ID: "b1", AwaitsRoom: map[string]int{"api": 1}, FailedTGAllocs: full}, false},
		"evaluated again just now":       {first, nil, false},
		"no node suits, nor will":        {&fleet.Evaluation{ID: "e1", FailedTGAllocs: full}, nil, true},
	} {
		job := &fleet.Job{ID: "shop", TaskGroups: []fleet.TaskGroup{{Name: "web", Count: 1}}}
		f := &followedJob{job: job, eval: tc.eval, blocked: tc.blocked}
		p := api.Progress{Deployment: &fleet.Deployment{Status: fleet.DeploymentRunning, TaskGroups: map[string]fleet.DeploymentState{"web": {}}}}
		for what, done := range map[string]func() (bool, error){"a job": f.checkRunning, "its deployment": func() (bool, error) { return f.checkRollout(p) }} {
			_, err := done()
			var exit *console.ExitError
			if waits := errors.As(err, &exit) && exit.Code == exitWaiting && strings.Contains(err.Error(), "port collision"); waits != tc.waits || !waits && err != nil {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
	}
}

// TestPromotionWithoutAnOutlook follows a deployment that a hub says no outlook of: one of an
// older release, or one whose job has a newer version by now.
func TestPromotionWithoutAnOutlook(t *testing.T) {
	f := &followedJob{job: &fleet.Job{ID: "shop"}, eval: &fleet.Evaluation{}}
	p := api.Progress{
		Deployment: &fleet.Deployment{ID: "abcdef01-2", Status: fleet.DeploymentRunning, TaskGroups: map[string]fleet.DeploymentState{"web": {DesiredCanaries: 1}}},
		Groups:     map[string]map[string]api.SiteProgress{"web": {"": {Healthy: 1}}},
	}
	if _, err := f.checkRollout(p); err == nil || !strings.HasSuffix(err.Error(), "deployment abcdef01 waits for its promotion") {
		t.Errorf("it is followed until: %v", err)
	}
}

// TestManyAllocsShareALine writes the changes of allocations where the output is no terminal: a line for each, and one
// line for many that reach the same status at once.
func TestManyAllocsShareALine(t *testing.T) {
	stubs := func(n int, status, group string) (allocs []api.AllocStub) {
		for i := range n {
			id := fleet.AllocID(fmt.Sprintf("%s-%d", group, i))
			allocs = append(allocs, api.AllocStub{
				ID: id, Name: string(id), NodeName: "north", TaskGroup: group, ClientStatus: status, DesiredStatus: fleet.DesiredRun,
			})
		}
		return allocs
	}
	for name, tc := range map[string]struct {
		allocs []api.AllocStub
		want   []string // after the time
	}{
		"seven": {stubs(7, fleet.ClientRunning, "web"), []string{`7 allocations of group "web" are running`}},
		"six":   {stubs(6, fleet.ClientRunning, "web"), []string{`6 allocations of group "web" are running`}},
		"seven and another group": {
			slices.Concat(stubs(7, fleet.ClientPending, "web"), stubs(1, fleet.ClientRunning, "api")),
			[]string{"allocation api-0 api-0 on north is running", `7 allocations of group "web" are pending`},
		},
		"five": {stubs(5, fleet.ClientRunning, "web"), []string{
			"allocation web-0 web-0 on north is running", "allocation web-1 web-1 on north is running", "allocation web-2 web-2 on north is running",
			"allocation web-3 web-3 on north is running", "allocation web-4 web-4 on north is running",
		}},
	} {
		var text strings.Builder
		s := newScreen(&console.Output{Writer: &text})
		s.showAllocs(tc.allocs)
		s.showAllocs(tc.allocs) // nothing has changed: nothing is written
		var got []string
		for line := range strings.Lines(text.String()) {
			_, change, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
			got = append(got, change)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
