package fleet_test

import (
	"testing"
	"time"

	"skerry/fleet"
)

func job() *fleet.Job {
	j := &fleet.Job{ID: "j", TaskGroups: []fleet.TaskGroup{
		{Name: "a", Count: 2, Tasks: []fleet.Task{{
			Name: "t", Driver: "raw_exec", Config: map[string]any{"command": "x", "n": int64(1)}, Env: map[string]string{"A": "1"},
		}}},
		{Name: "b", Count: 1, Tasks: []fleet.Task{{Name: "t", Driver: "sim"}}},
	}}
	j.Defaults()
	return j
}

func TestGroupUpdate(t *testing.T) {
	constraint := []fleet.Constraint{{LTarget: "${attr.x}", Operand: "=", RTarget: "1"}}
	for name, c := range map[string]struct {
		change func(j *fleet.Job)
		a, b   fleet.GroupChange
	}{
		"nothing":            {func(*fleet.Job) {}, fleet.GroupSame, fleet.GroupSame},
		"written by the hub": {func(j *fleet.Job) { j.Version, j.JobModifyIndex, j.Status = 9, 9, "running" }, fleet.GroupSame, fleet.GroupSame},
		"number type":        {func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Config["n"] = uint64(1) }, fleet.GroupSame, fleet.GroupSame},
		"count":              {func(j *fleet.Job) { j.TaskGroups[0].Count = 5 }, fleet.GroupInPlace, fleet.GroupSame},
		"job meta":           {func(j *fleet.Job) { j.Meta = map[string]string{"k": "v"} }, fleet.GroupDestructive, fleet.GroupDestructive},
		"group meta":         {func(j *fleet.Job) { j.TaskGroups[1].Meta = map[string]string{"k": "v"} }, fleet.GroupSame, fleet.GroupDestructive},
		"priority":           {func(j *fleet.Job) { j.Priority = 80 }, fleet.GroupInPlace, fleet.GroupInPlace},
		"datacenters":        {func(j *fleet.Job) { j.Datacenters = []string{"dc2"} }, fleet.GroupInPlace, fleet.GroupInPlace},
		"constraints":        {func(j *fleet.Job) { j.Constraints = constraint }, fleet.GroupInPlace, fleet.GroupInPlace},
		"task constraints":   {func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Constraints = constraint }, fleet.GroupInPlace, fleet.GroupSame},
		"restart": {func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].RestartPolicy = &fleet.RestartPolicy{Attempts: 9} },
			fleet.GroupInPlace, fleet.GroupSame},
		"disconnect":   {func(j *fleet.Job) { j.TaskGroups[0].Disconnect = &fleet.Disconnect{} }, fleet.GroupInPlace, fleet.GroupSame},
		"kill timeout": {func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].KillTimeout = time.Minute }, fleet.GroupInPlace, fleet.GroupSame},
		"affinities":   {func(j *fleet.Job) { j.Affinities = []fleet.Affinity{{Weight: 5}} }, fleet.GroupDestructive, fleet.GroupDestructive},
		"spreads":      {func(j *fleet.Job) { j.TaskGroups[0].Spreads = []fleet.Spread{{Weight: 5}} }, fleet.GroupDestructive, fleet.GroupSame},
		"update":       {func(j *fleet.Job) { j.TaskGroups[0].Update = nil }, fleet.GroupInPlace, fleet.GroupSame},
		"services":     {func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Services = []fleet.Service{{}} }, fleet.GroupInPlace, fleet.GroupSame},
		"user":         {func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].User = "x" }, fleet.GroupDestructive, fleet.GroupSame},
		"templates":    {func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Templates = []fleet.Template{{}} }, fleet.GroupDestructive, fleet.GroupSame},
		"volumes": {func(j *fleet.Job) { j.TaskGroups[0].Volumes = map[string]fleet.VolumeRequest{"v": {}} },
			fleet.GroupDestructive, fleet.GroupSame},
		"config": {func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Config["command"] = "y" }, fleet.GroupDestructive, fleet.GroupSame},
		"env":    {func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Env["A"] = "2" }, fleet.GroupDestructive, fleet.GroupSame},
		"task meta": {func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Meta = map[string]string{"k": "v"} },
			fleet.GroupDestructive, fleet.GroupSame},
		"driver":    {func(j *fleet.Job) { j.TaskGroups[1].Tasks[0].Driver = "raw_exec" }, fleet.GroupSame, fleet.GroupDestructive},
		"resources": {func(j *fleet.Job) { j.TaskGroups[0].Tasks[0].Resources.CPU++ }, fleet.GroupDestructive, fleet.GroupSame},
		"disk":      {func(j *fleet.Job) { j.TaskGroups[0].EphemeralDisk.SizeMB++ }, fleet.GroupDestructive, fleet.GroupSame},
		"new task": {func(j *fleet.Job) {
			j.TaskGroups[1].Tasks = append(j.TaskGroups[1].Tasks, fleet.Task{Name: "u"})
		}, fleet.GroupSame, fleet.GroupDestructive},
		"group gone": {func(j *fleet.Job) { j.TaskGroups = j.TaskGroups[:1] }, fleet.GroupSame, fleet.GroupRemoved},
	} {
		updated := job()
		c.change(updated)
		if got := fleet.GroupUpdate(job(), updated, "a"); got != c.a {
			t.Errorf("%s: group a %s, want %s", name, got, c.a)
		}
		if got := fleet.GroupUpdate(job(), updated, "b"); got != c.b {
			t.Errorf("%s: group b %s, want %s", name, got, c.b)
		}
	}
	if got := fleet.GroupUpdate(nil, job(), "a"); got != fleet.GroupDestructive {
		t.Errorf("new job: %s", got)
	}
	if got := fleet.GroupUpdate(job(), nil, "a"); got != fleet.GroupRemoved {
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
