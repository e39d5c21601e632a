package main

import (
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/fleet/diff"
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
		writeDiff(&out, diff.Jobs(old, job(time.Minute)), "")
		if !strings.Contains(out.String(), want) {
			t.Errorf("the diff does not say %s:\n%s", want, out.String())
		}
	}
}
