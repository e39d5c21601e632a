package api_test

import (
	"maps"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"
)

// TestPlanSaysWhatBecomesOfEachGroup counts in the diff as beside it.
func TestPlanSaysWhatBecomesOfEachGroup(t *testing.T) {
	_, _, c := mustServe(t)
	plan, _, err := c.Jobs().Plan(exampleJob("web"), true, nil)
	if err != nil || len(plan.Diff.TaskGroups) != 1 || !maps.Equal(plan.Diff.TaskGroups[0].Updates, map[string]uint64{"create": 2}) {
		t.Errorf("%+v, %v", plan, err)
	}
	if !plan.NextPeriodicLaunch.IsZero() {
		t.Errorf("a job that is not periodic is launched next at %s", plan.NextPeriodicLaunch)
	}
}

// TestPlanSaysWhenAPeriodicJobIsNext asks for the time of the first launch, in the job's zone.
func TestPlanSaysWhenAPeriodicJobIsNext(t *testing.T) {
	_, _, c := mustServe(t)
	job, spec, zone := batchJob("nightly"), "0 3 * * *", "Asia/Tokyo"
	job.AddPeriodicConfig(&nomad.PeriodicConfig{Spec: &spec, TimeZone: &zone})
	plan, _, err := c.Jobs().Plan(job, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	next := plan.NextPeriodicLaunch
	if until := time.Until(next); until <= 0 || until > 25*time.Hour || next.UTC().Hour() != 18 || next.Minute() != 0 {
		t.Errorf("it is launched next at %s", next)
	}
	enabled := false
	job.Periodic.Enabled = &enabled
	if plan, _, err := c.Jobs().Plan(job, false, nil); err != nil || !plan.NextPeriodicLaunch.IsZero() {
		t.Errorf("one that is not launched is so next at %s, %v", plan.NextPeriodicLaunch, err)
	}
}
