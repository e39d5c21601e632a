package diff_test

import (
	"testing"
	"time"

	"skerry/fleet"
	"skerry/fleet/diff"
	"skerry/fleet/validate"
)

func job() *fleet.Job {
	j := &fleet.Job{ID: "j", TaskGroups: []fleet.TaskGroup{
		{Name: "a", Count: 2, Tasks: []fleet.Task{{
			Name: "t", Driver: "raw_exec", Config: map[string]any{"command": "x", "n": int64(1)}, Env: map[string]string{"A": "1"},
		}}},
		{Name: "b", Count: 1, Tasks: []fleet.Task{{Name: "t", Driver: "sim"}}},
	}}
	validate.FillDefaults(j)
	return j
}

func TestGroupUpdate(t *testing.T) {
	constraint := []fleet.Constraint{{LTarget: "${attr.x}", Operand: "=", RTarget: "1"}}
	for name, c := range map[string]struct {
		change func(j *fleet.Job)
		a, b   diff.GroupChange
	}{
		"nothing":            {func(*fleet.Job) {}, diff.GroupSame, diff.GroupSame},
		"written by the hub": {func(j *fleet.Job) { j.Version, j.JobModifyIndex, j.Status = 9, 9, "running" }, diff.GroupSame, diff.GroupSame},
		"number type":        {func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Config["n"] = uint64(1) }, diff.GroupSame, diff.GroupSame},
		"count":              {func(j *fleet.Job) { j.TaskGroups[0].Count = 5 }, diff.GroupInPlace, diff.GroupSame},
		"job meta":           {func(j *fleet.Job) { j.Meta = map[string]string{"k": "v"} }, diff.GroupDestructive, diff.GroupDestructive},
		"group meta":         {func(j *fleet.Job) { j.TaskGroups[1].Meta = map[string]string{"k": "v"} }, diff.GroupSame, diff.GroupDestructive},
		"priority":           {func(j *fleet.Job) { j.Priority = 80 }, diff.GroupInPlace, diff.GroupInPlace},
		"datacenters":        {func(j *fleet.Job) { j.Datacenters = []string{"dc2"} }, diff.GroupInPlace, diff.GroupInPlace},
		"constraints":        {func(j *fleet.Job) { j.Constraints = constraint }, diff.GroupInPlace, diff.GroupInPlace},
		"task constraints":   {func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Constraints = constraint }, diff.GroupInPlace, diff.GroupSame},
		"restart": {func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].RestartPolicy = &fleet.RestartPolicy{Attempts: 9} },
			diff.GroupInPlace, diff.GroupSame},
		"disconnect":   {func(j *fleet.Job) { j.TaskGroups[0].Disconnect = &fleet.Disconnect{} }, diff.GroupInPlace, diff.GroupSame},
		"kill timeout": {func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].KillTimeout = time.Minute }, diff.GroupInPlace, diff.GroupSame},
		"affinities":   {func(j *fleet.Job) { j.Affinities = []fleet.Affinity{{Weight: 5}} }, diff.GroupDestructive, diff.GroupDestructive},
		"spreads":      {func(j *fleet.Job) { j.TaskGroups[0].Spreads = []fleet.Spread{{Weight: 5}} }, diff.GroupDestructive, diff.GroupSame},
		"update":       {func(j *fleet.Job) { j.TaskGroups[0].Update = nil }, diff.GroupInPlace, diff.GroupSame},
		"services":     {func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Services = []fleet.Service{{}} }, diff.GroupInPlace, diff.GroupSame},
		"user":         {func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].User = "x" }, diff.GroupDestructive, diff.GroupSame},
		"templates":    {func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Templates = []fleet.Template{{}} }, diff.GroupDestructive, diff.GroupSame},
		"volumes": {func(j *fleet.Job) { j.TaskGroups[0].Volumes = map[string]fleet.VolumeRequest{"v": {}} },
			diff.GroupDestructive, diff.GroupSame},
		"config": {func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Config["command"] = "y" }, diff.GroupDestructive, diff.GroupSame},
		"env":    {func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Env["A"] = "2" }, diff.GroupDestructive, diff.GroupSame},
		"task meta": {func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Meta = map[string]string{"k": "v"} },
			diff.GroupDestructive, diff.GroupSame},
		"driver":    {func(j *fleet.Job) { j.TaskGroups[1].Tasks[0].Driver = "raw_exec" }, diff.GroupSame, diff.GroupDestructive},
		"resources": {func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Resources.CPU++ }, diff.GroupDestructive, diff.GroupSame},
		"disk":      {func(j *fleet.Job) { j.TaskGroups[0].EphemeralDisk.SizeMB++ }, diff.GroupDestructive, diff.GroupSame},
		"new task": {func(j *fleet.Job) {
			j.TaskGroups[1].Tasks = append(j.TaskGroups[1].Tasks, fleet.Task{Name: "u"})
		}, diff.GroupSame, diff.GroupDestructive},
		"group gone": {func(j *fleet.Job) { j.TaskGroups = j.TaskGroups[:1] }, diff.GroupSame, diff.GroupRemoved},
	} {
		updated := job()
		c.change(updated)
		if got := diff.GroupUpdate(job(), updated, "a"); got != c.a {
			t.Errorf("%s: group a %s, want %s", name, got, c.a)
		}
		if got := diff.GroupUpdate(job(), updated, "b"); got != c.b {
			t.Errorf("%s: group b %s, want %s", name, got, c.b)
		}
	}
	if got := diff.GroupUpdate(nil, job(), "a"); got != diff.GroupDestructive {
		t.Errorf("new job: %s", got)
	}
	if got := diff.GroupUpdate(job(), nil, "a"); got != diff.GroupRemoved {
		t.Errorf("purged job: %s", got)
	}
}

func TestInDatacenter(t *testing.T) {
	for _, c := range []struct {
		patterns []string
		dc       string
		want     bool
	}{
		{nil, "dc1", true}, {[]string{"*"}, "dc1", true}, {[]string{"dc1"}, "dc1", true}, {[]string{"dc1"}, "dc10", false},
		{[]string{"eu-*", "us"}, "eu-west", true}, {[]string{"eu-*", "us"}, "us", true}, {[]string{"*-west"}, "eu-west", true},
		{[]string{"e*u*t"}, "eu-west", true}, {[]string{"a*a"}, "a", false}, {[]string{"a*b*b"}, "ab", false}, {[]string{"[d]c1"}, "dc1", false},
	} {
		if got := (&fleet.Job{Datacenters: c.patterns}).InDatacenter(c.dc); got != c.want {
			t.Errorf("%q has %q: %v", c.patterns, c.dc, got)
		}
	}
}

func TestInPool(t *testing.T) {
	for _, c := range []struct {
		job, node string
		want      bool
	}{
		{"", "", true}, {"default", "", true}, {"", "default", true}, {"all", "sea", true}, {"sea", "sea", true},
		{"sea", "default", false}, {"", "sea", false},
	} {
		if got := (&fleet.Job{NodePool: c.job}).InPool(c.node); got != c.want {
			t.Errorf("job of %q on a node of %q: %v", c.job, c.node, got)
		}
	}
}
