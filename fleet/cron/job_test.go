package cron_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/fleet/cron"
)

// However many expressions and windows a job names, checking them takes a bounded time,
// and what is too many is refused with the bound.
func TestExpressionsOfAJobAreBounded(t *testing.T) {
	now := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	specs := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("%d %d * * *", i%60, i/60%24))
		}
		return all
	}
	var weekly []string // close by their seconds, and never on the same day
	for i := range 100 {
		weekly = append(weekly, fmt.Sprintf("%d 0 12 * %d %d *", i%7, 1+i%12, i%7))
	}
	windows := func(n, different int) (groups []fleet.TaskGroup) {
		for i := range n {
			groups = append(groups, fleet.TaskGroup{Name: fmt.Sprint(i), Update: &fleet.Update{Windows: []fleet.UpdateWindow{{
				Cron: fmt.Sprintf("%d %d * * *", i%different%60, i%different/60), Duration: time.Minute,
			}}}})
		}
		return groups
	}
	for _, tt := range []struct {
		name string
		job  fleet.Job
		says string
	}{
		{"100 crons", fleet.Job{Periodic: &fleet.Periodic{SpecType: fleet.PeriodicCron, Specs: specs(100)}}, ""},
		{"20,000 crons", fleet.Job{Periodic: &fleet.Periodic{SpecType: fleet.PeriodicCron, Specs: specs(20_000)}}, "20000 cron expressions, at most 100 are taken"},
		{"100 crons on days that are looked for", fleet.Job{Periodic: &fleet.Periodic{SpecType: fleet.PeriodicCron, Specs: weekly}}, "takes too long to find out"},
		{"1,000 groups with a window", fleet.Job{TaskGroups: windows(1000, 50)}, ""},
		{"1,000 different windows", fleet.Job{TaskGroups: windows(1000, 1000)}, "more than 100 different windows"},
	} {
		begun := time.Now()
		problems := cron.Problems(&tt.job, now)
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("%s: checking them took %s", tt.name, took)
		}
		if tt.says == "" && len(problems) > 0 || tt.says != "" && (len(problems) != 1 || !strings.Contains(problems[0].Message, tt.says)) {
			t.Errorf("%s: %v", tt.name, problems)
		}
	}
}
