package job

import (
	"os"
	"strings"
	"testing"
	"time"

	"skerry/api"
	"skerry/cmd/console"
	"skerry/fleet"
	"skerry/fleet/diff"
	"skerry/fleet/validate"
)

func TestDiffValue(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"KillTimeout", "5000000000", "5s"},
		{"LostAfter", "3600000000000", "1h0m0s"},
		{"Checks[0].Interval", "10000000000", "10s"},
		{"Delay", "0", "0s"},
		{"Delay", "", ""},
		{"Delay", "9223372036854775808", "9223372036854775808"},
		{"Count", "5000000000", "5000000000"},
		{"Max", "5", "5"},
		{"Env[KillTimeout]", "5000000000", "5000000000"},
	} {
		if got := diffValue(c.name, c.value); got != c.want {
			t.Errorf("%s of %q is shown as %q, want %q", c.name, c.value, got, c.want)
		}
	}
}

func TestDiffOfDurations(t *testing.T) {
	job := func(timeout time.Duration) *fleet.Job {
		return &fleet.Job{ID: "web", TaskGroups: []fleet.TaskGroup{{Name: "g", Tasks: []fleet.Task{{Name: "t", KillTimeout: timeout}}}}}
	}
	for want, old := range map[string]*fleet.Job{
		`+ KillTimeout: "1m0s"`:         nil,
		`~ KillTimeout: "5s" => "1m0s"`: job(5 * time.Second),
	} {
		var out strings.Builder
		writeDiff(&console.Output{Writer: &out}, diff.Jobs(old, job(time.Minute)), "")
		if !strings.Contains(out.String(), want) {
			t.Errorf("the diff does not say %s:\n%s", want, out.String())
		}
	}
}

// TestWritePlan holds what job plan writes against testdata/plan.txt.
func TestWritePlan(t *testing.T) {
	want, err := os.ReadFile("testdata/plan.txt")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	writePlan(&console.Output{Writer: &got}, plan())
	if got.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
}

func plan() api.PlanAnswer {
	old := &fleet.Job{ID: "shop", TaskGroups: []fleet.TaskGroup{{Name: "web", Count: 1, Tasks: []fleet.Task{{Name: "t", Driver: "sim", Env: map[string]string{"A": "1"}}}}}}
	validate.FillDefaults(old)
	updated := &fleet.Job{ID: "shop", Constraints: []fleet.Constraint{{LTarget: "${attr.gpu}", Operand: "is_set"}}, TaskGroups: []fleet.TaskGroup{
		{Name: "web", Count: 3, Tasks: []fleet.Task{{Name: "t", Driver: "sim", Env: map[string]string{"B": "2"}}}}}}
	validate.FillDefaults(updated)
	changes := diff.Jobs(old, updated)
	return api.PlanAnswer{
		Diff:        &changes,
		Annotations: api.PlanAnnotations{DesiredTGUpdates: map[string]fleet.DesiredUpdates{"web": {Place: 2, DestructiveUpdate: 2, Ignore: 1, NoNode: 2, AwaitsRoom: 1}, "job": {Place: 1}}},
		FailedTGAllocs: map[string]*fleet.AllocMetric{"web": {NodesEvaluated: 9, NodesFiltered: 5, NodesExhausted: 4, CoalescedFailures: 1,
			RejectedNodes:      []fleet.NodeRejection{{NodeID: "4f2c1a90-1", NodeName: "till7", Why: "memory: 512 MB asked for, 100 of 2000 free"}},
			ConstraintFiltered: map[string]int{"${attr.gpu} is_set": 1}, DimensionExhausted: map[string]int{"memory": 1}}},
		Reasons: []string{"place shop.web[1]: group web wants 3"},
	}
}
