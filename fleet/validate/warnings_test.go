package validate_test

import (
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/fleet/validate"
)

func TestWarnings(t *testing.T) {
	group := func(name string, count int, u *fleet.Update) fleet.TaskGroup {
		return fleet.TaskGroup{Name: name, Count: count, Update: u}
	}
	second, services := time.Second, []fleet.Service{{Name: "s"}}
	for _, tc := range []struct {
		name    string
		jobType string
		groups  []fleet.TaskGroup
		want    []string // parts of the lines
	}{
		{"nothing to say", fleet.JobTypeService, []fleet.TaskGroup{group("a", 2, &fleet.Update{MaxParallel: 2})}, nil},
		{"no update block", fleet.JobTypeBatch, []fleet.TaskGroup{group("a", 2, nil)}, nil},
		{"all at once", fleet.JobTypeService, []fleet.TaskGroup{group("a", 2, &fleet.Update{MaxParallel: 3})}, []string{`group "a": max_parallel is 3 and the count is 2`}},
		{"a system job has no count", fleet.JobTypeSystem, []fleet.TaskGroup{group("a", 1, &fleet.Update{MaxParallel: 3})}, nil},
		{"scaled to nothing", fleet.JobTypeService, []fleet.TaskGroup{group("a", 0, &fleet.Update{MaxParallel: 1})}, nil},
		{"one of two promotes itself", fleet.JobTypeService, []fleet.TaskGroup{
			group("a", 2, &fleet.Update{MaxParallel: 1, Canary: 1, AutoPromote: true}), group("b", 2, &fleet.Update{MaxParallel: 1, Canary: 1}),
		}, []string{"auto_promote is set for 1 of 2 groups"}},
		{"the other one has no canaries", fleet.JobTypeService, []fleet.TaskGroup{
			group("a", 2, &fleet.Update{MaxParallel: 1, Canary: 1, AutoPromote: true}), group("b", 2, &fleet.Update{MaxParallel: 1}),
		}, nil},
		{"F23 services that stop at once", fleet.JobTypeService, []fleet.TaskGroup{{Name: "a", Tasks: []fleet.Task{{Services: services}}}, {Name: "b", Services: services}},
			[]string{`group "a" has services, and neither the group nor a task has a shutdown_delay`, `group "b"`}},
		{"services that do not", fleet.JobTypeService, []fleet.TaskGroup{
			{Name: "a", ShutdownDelay: &second, Services: services}, {Name: "b", Services: services, Tasks: []fleet.Task{{ShutdownDelay: second}}},
		}, nil},
		{"words of old job files", fleet.JobTypeService, []fleet.TaskGroup{{Name: "a", Count: 1, Update: &fleet.Update{MaxParallel: 1, Stagger: second},
			Migrate:  &fleet.Migrate{HealthCheck: fleet.HealthTaskStates, HealthyDeadline: second},
			Networks: []fleet.NetworkResource{{MBits: 10, Device: "eth0", CIDR: "192.0.2.0/24", IP: "192.0.2.7"}},
		}}, []string{"stagger of the update block is ignored: max_parallel", "health_check of the migrate block", "healthy_deadline of the migrate block",
			"mbits of a network is ignored: bandwidth", "device of a network", "cidr of a network", "ip of a network"}},
		{"what nobody asked for", fleet.JobTypeService, []fleet.TaskGroup{{Name: "a", Count: 1, Update: fleet.DefaultUpdate(fleet.JobTypeService),
			Migrate: fleet.DefaultMigrate(fleet.JobTypeService), Networks: []fleet.NetworkResource{{Mode: fleet.NetworkHost}}}}, nil},
		{"F47 an identity for everybody and for ever", fleet.JobTypeService, []fleet.TaskGroup{{Name: "a", Tasks: []fleet.Task{{Name: "t", Identities: []fleet.WorkloadIdentity{
			{Name: "x"}, {Name: "y", Audience: []string{"shop"}, TTL: second}, {Name: fleet.DefaultIdentity},
		}}}}}, []string{`task "t": identity "x" has no audience`, `identity "x" has no ttl`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := validate.Warnings((&fleet.Job{Type: tc.jobType, TaskGroups: tc.groups}))
			if len(got) != len(tc.want) {
				t.Fatalf("%q, want %q", got, tc.want)
			}
			for i := range got {
				if !strings.Contains(got[i], tc.want[i]) {
					t.Errorf("%q, want %q", got[i], tc.want[i])
				}
			}
		})
	}
}

func TestHiddenIdentities(t *testing.T) {
	job := &fleet.Job{TaskGroups: []fleet.TaskGroup{{Name: "a", Tasks: []fleet.Task{
		{Name: "t", Identity: &fleet.WorkloadIdentity{Name: fleet.DefaultIdentity}, Identities: []fleet.WorkloadIdentity{{Name: "x"}, {Name: "y", File: true}, {Name: "z", Env: true}}}, {Name: "u"},
	}}}}
	if got := validate.HiddenIdentities(job); len(got) != 2 || !strings.Contains(got[0], `task "t": identity "default" has neither file`) || !strings.Contains(got[1], `identity "x" has neither file`) {
		t.Errorf("%q", got)
	}
}
