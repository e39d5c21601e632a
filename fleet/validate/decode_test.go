package validate_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"skerry/fleet"
	"skerry/fleet/diff"
	"skerry/fleet/validate"
)

// TestDecodeClientJob decodes what Nomad's published client sends: a job built in Go,
// as it is and after the client filled in its own defaults.
func TestDecodeClientJob(t *testing.T) {
	for _, jobType := range []string{"service", "batch"} {
		for _, canonical := range []bool{false, true} {
			t.Run(fmt.Sprint(jobType, canonical), func(t *testing.T) {
				sent := &api.Job{ID: ptr("j"), Name: ptr("j"), Datacenters: []string{"dc1"}}
				if jobType == "batch" {
					sent.Type = ptr("batch")
				}
				task := api.NewTask("t", "raw_exec").SetConfig("command", "/bin/true").SetConfig("n", 3).
					Require(&api.Resources{CPU: ptr(20)})
				group := api.NewTaskGroup("g", 3).AddTask(task)
				group.RestartPolicy = &api.RestartPolicy{Attempts: ptr(0)}
				sent.AddTaskGroup(group)
				if canonical {
					sent.Canonicalize()
				}
				got, problems := validate.DecodeJob(mustJSON(t, sent))
				if len(problems) > 0 {
					t.Fatalf("problems: %v", problems.Lines())
				}
				want := &fleet.Job{ID: "j", Type: jobType, Datacenters: []string{"dc1"}, TaskGroups: []fleet.TaskGroup{{
					Name: "g", Count: 3,
					Tasks: []fleet.Task{{
						Name: "t", Driver: "raw_exec", Config: map[string]any{"command": "/bin/true", "n": int64(3)},
						Resources: fleet.TaskResources{Resources: fleet.Resources{CPU: 20, MemoryMB: fleet.DefaultMemoryMB}},
					}},
				}}}
				validate.FillDefaults(want)
				want.TaskGroups[0].RestartPolicy.Attempts = 0
				want.TaskGroups[0].Tasks[0].RestartPolicy.Attempts = 0
				wantEqual(t, "job", got, want)
				if problems := validate.Job(got); len(problems) > 0 {
					t.Errorf("invalid: %v", problems.Lines())
				}
			})
		}
	}
}

// TestDecodeOwnJob hands a job in again as the API gave it.
func TestDecodeOwnJob(t *testing.T) {
	lost, replace := 6*time.Hour, false
	want := job()
	want.TaskGroups[0].Disconnect = &fleet.Disconnect{LostAfter: &lost, Replace: &replace}
	want.Constraints = []fleet.Constraint{{LTarget: "${attr.x}", Operand: "=", RTarget: "1"}}
	want.Version, want.JobModifyIndex, want.Status = 3, 17, "running"
	got, problems := validate.DecodeJob(mustJSON(t, want))
	if len(problems) > 0 {
		t.Fatalf("problems: %v", problems.Lines())
	}
	wantEqual(t, "job", got, want)
}

func TestDecodeNullAndZero(t *testing.T) {
	for in, want := range map[string]int{`"Count": null`: 1, `"Count": 0`: 0, `"X": null`: 1, `"count": 4`: 4} {
		job, problems := validate.DecodeJob([]byte(`{"ID": "j", "TaskGroups": [{"Name": "g", ` + in + `}]}`))
		if len(problems) > 0 || job.TaskGroups[0].Count != want {
			t.Errorf("%s: %d, %v", in, job.TaskGroups[0].Count, problems)
		}
	}
	job, problems := validate.DecodeJob([]byte(`{"Priority": 0, "TaskGroups": [{"Tasks": [{"Resources": {"CPU": 0}, "KillTimeout": "1m30s"}]}]}`))
	task := job.TaskGroups[0].Tasks[0]
	if len(problems) > 0 || job.Priority != 0 || task.Resources.Resources != (fleet.Resources{MemoryMB: 300}) || task.KillTimeout != 90*time.Second {
		t.Errorf("%+v, %v", job, problems)
	}
}

func TestDecodeReschedule(t *testing.T) {
	service := fleet.ReschedulePolicy{Delay: 30 * time.Second, DelayFunction: "exponential", MaxDelay: time.Hour, Unlimited: true}
	with := func(change func(p *fleet.ReschedulePolicy)) fleet.ReschedulePolicy {
		p := service
		change(&p)
		return p
	}
	for _, c := range []struct {
		job, group string
		want       fleet.ReschedulePolicy
	}{
		{`null`, `null`, service},
		{`{"Delay": "10s"}`, `{"MaxDelay": "5m"}`, with(func(p *fleet.ReschedulePolicy) { p.Delay, p.MaxDelay = 10*time.Second, 5*time.Minute })},
		{`{"Attempts": 3, "Interval": "1h"}`, `null`, with(func(p *fleet.ReschedulePolicy) { p.Attempts, p.Interval, p.Unlimited = 3, time.Hour, false })},
		{`{"Attempts": 3, "Interval": "1h"}`, `{"Unlimited": true}`, with(func(p *fleet.ReschedulePolicy) { p.Attempts, p.Interval = 3, time.Hour })},
		{`{"Attempts": 0, "Unlimited": false}`, `null`, with(func(p *fleet.ReschedulePolicy) { p.Unlimited = false })},
	} {
		src := fmt.Sprintf(`{"Reschedule": %s, "TaskGroups": [{"ReschedulePolicy": %s}]}`, c.job, c.group)
		job, problems := validate.DecodeJob([]byte(src))
		if len(problems) > 0 || *job.TaskGroups[0].ReschedulePolicy != c.want {
			t.Errorf("%s: %+v, %v", src, *job.TaskGroups[0].ReschedulePolicy, problems)
		}
	}
}

func TestDecodeProblems(t *testing.T) {
	for src, want := range map[string]string{
		``:                        "not a job in JSON",
		`null`:                    "null",
		`[]`:                      "not a job in JSON",
		`{} x`:                    "there is text after",
		"{\n \"ID\" }":            "line 2, column 7",
		`{"ID": 1}`:               "ID: must be a string, not 1",
		`{"Idd": "x"}`:            "Idd: Idd is not known",
		`{"ID": "x", "iD": "y"}`:  "iD: iD is defined twice, also as ID",
		`{"Id": "x", "iD": "y"}`:  "iD: iD is defined twice, also as Id",
		`{"ID": "", "iD": "y"}`:   "iD: iD is defined twice, also as ID",
		`{"ID": null, "iD": "y"}`: "iD: iD is defined twice, also as ID",
		`{"META": {"a": "b"}, "Meta": {"a": "c"}}`:                "META: META is defined twice, also as Meta",
		`{"TASKGROUPS": [{}], "ta\u017fkgroups": [{}]}`:           "defined twice, also as TASKGROUPS", // a long s
		`{"TaskGroups": {}}`:                                      "TaskGroups: must be a list",
		`{"Datacenters": [1]}`:                                    "Datacenters[0]: must be a string",
		`{"Meta": {"a": 1}}`:                                      "Meta.a: must be a string",
		`{"Priority": 1.5}`:                                       "Priority: must be a whole number",
		`{"Priority": 99999999999}`:                               "Priority: 99999999999 is out of range",
		`{"AllAtOnce": "yes"}`:                                    `AllAtOnce: must be true or false, not "yes"`,
		`{"TaskGroups": [{"Disconnect": {"LostAfter": "soon"}}]}`: `LostAfter: "soon" is not a duration`,
		`{"TaskGroups": [{"Disconnect": 5}]}`:                     "Disconnect: must be an object, not 5",
		`{"Meta": ` + strings.Repeat(`{"a":`, 200):                "nested more than",
		`{"ID": "` + strings.Repeat("x", fleet.MaxJobSize) + `"}`: "at most",
	} {
		job, problems := validate.DecodeJob([]byte(src))
		if job == nil || len(problems) != 1 || !strings.Contains(problems[0].String(), want) {
			t.Errorf("%.60s: %v, want %q", src, problems, want)
		}
	}
}

// A key in another case counts if none is written exactly. Of several, the first counts that says something, and null says less
// than 0.
func TestKeysInAnotherCase(t *testing.T) {
	for src, want := range map[string]int{
		`{"priority": 7}`:                    7,
		`{"PRIORITY": 0, "priority": null}`:  0,
		`{"PRIORITY": null, "priority": 0}`:  0,
		`{"PRIORITY": 0, "priority": 7}`:     7,
		`{"PRIORITY": 7, "priority": 0}`:     7,
		`{"PRIORITY": null, "priority": 7}`:  7,
		`{"Priority": 7, "priority": null}`:  7,
		`{"Priority": null, "priority": ""}`: fleet.JobPriorityDefault,
	} {
		for range 10 { // the order of the keys differs
			if job, problems := validate.DecodeJob([]byte(src)); len(problems) > 0 || job.Priority != want {
				t.Errorf("%s: priority %d, %v, want %d", src, job.Priority, problems, want)
			}
		}
	}
}

func TestReschedulesThatFit(t *testing.T) {
	minutes := func(n int) time.Duration { return time.Duration(n) * time.Minute }
	for _, c := range []struct {
		p    fleet.ReschedulePolicy
		want string // "" fits
	}{
		{fleet.ReschedulePolicy{Attempts: 10, Interval: minutes(60), Delay: minutes(20), DelayFunction: "constant"}, "it takes 3h20m0s"},
		{fleet.ReschedulePolicy{Attempts: 3, Interval: minutes(60), Delay: minutes(20), DelayFunction: "constant"}, ""},
		{fleet.ReschedulePolicy{Attempts: 10, Interval: minutes(30), Delay: minutes(5), MaxDelay: minutes(40), DelayFunction: "exponential"},
			"only 3 of 10 attempts fit into 30m0s: it takes 4h40m0s"},
		{fleet.ReschedulePolicy{Attempts: 10, Interval: minutes(60), Delay: minutes(20), MaxDelay: minutes(80), DelayFunction: "fibonacci"},
			"only 4 of 10 attempts fit into 1h0m0s: it takes 8h0m0s"},
		{fleet.ReschedulePolicy{Attempts: 1 << 30, Interval: minutes(60), Delay: minutes(20), MaxDelay: minutes(80), DelayFunction: "fibonacci"}, "only 4 of"},
		{fleet.ReschedulePolicy{Unlimited: true, Delay: minutes(1), MaxDelay: minutes(2), DelayFunction: "fibonacci"}, ""},
		{fleet.ReschedulePolicy{Unlimited: true, Delay: minutes(3), MaxDelay: minutes(2), DelayFunction: "fibonacci"}, "less than the delay"},
	} {
		j := job()
		j.TaskGroups[0].ReschedulePolicy = &c.p
		problems := validate.Job(j)
		if c.want == "" && len(problems) > 0 || c.want != "" && (len(problems) != 1 || !strings.Contains(problems[0].Message, c.want)) {
			t.Errorf("%+v: %v, want %q", c.p, problems.Lines(), c.want)
		}
	}
}

func FuzzDecodeJob(f *testing.F) {
	f.Add(mustJSON(f, job()))
	f.Add([]byte(`{"ID": "j", "TaskGroups": [{"Tasks": [{"Config": {"a": [1, 2.5, 1e999]}}], "Update": {"MaxParallel": 1}}]}`))
	f.Add([]byte(`{"Reschedule": {"Attempts": 5, "DelayFunction": "fibonacci"}, "TaskGroups": [{"RestartPolicy": {"Interval": "5s"}}]}`))
	f.Add([]byte(`{"ID": "j", "Type": "batch", "Periodic": {"Specs": ["@daily"]}, "ParameterizedJob": {"MetaRequired": ["a"]}, "Payload": "eA==",
		"Affinities": [{"LTarget": "${node.class}", "RTarget": "x", "Weight": -5}], "UI": {"Links": [{"Label": "l", "URL": "u"}]},
		"TaskGroups": [{"Name": "g", "MaxRunDuration": "1h", "Networks": [{"Mode": "bridge", "DynamicPorts": [{"Label": "p", "To": -1}]}],
		"Volumes": {"v": {"Type": "host", "Source": "s"}}, "Scaling": {"Max": 3, "Policy": {"a": [1]}},
		"Services": [{"Provider": "nomad", "Checks": [{"Type": "http", "Path": "/", "Interval": "1s", "Timeout": "1s", "Header": {"a": ["b"]}}],
		"Connect": {"SidecarService": {"Proxy": {"Upstreams": [{}]}}}}],
		"Tasks": [{"Name": "t", "Driver": "d", "Templates": [{"EmbeddedTmpl": "x", "DestPath": "y", "Uid": 0, "Wait": {"Min": 5}}],
		"Artifacts": [{"GetterSource": "s"}], "Identity": {"Env": true}, "Vault": {}, "VolumeMounts": [{"Volume": "v", "Destination": "/"}],
		"Resources": {"Cores": 2, "Devices": [{"Name": "gpu"}], "NUMA": {"Affinity": "none"}}}]}]}`))
	f.Add([]byte(`{"Update": {"MaxParallel": 2, "WaitFor": "95%", "Windows": [{"Cron": "@daily", "Duration": "1h"}]}, "Migrate": {"MaxParallel": 3},
		"TaskGroups": [{"MaxClientDisconnect": "1h", "Spreads": [{"Attribute": "${node.datacenter}", "SpreadTarget": [{"Value": "a", "Percent": 50}]}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		job, problems := validate.DecodeJob(data)
		if len(problems)+len(validate.Job(job)) > 0 {
			return
		}
		again, problems := validate.DecodeJob(mustJSON(t, job))
		if len(problems) > 0 {
			t.Fatalf("a valid job is refused when it is handed in again: %v", problems.Lines())
		}
		if d := diff.Jobs(job, again); d.Type != diff.None {
			t.Fatalf("handing it in again changes it: %+v", d)
		}
	})
}

func ptr[T any](v T) *T { return &v }

func mustJSON(tb testing.TB, v any) []byte {
	tb.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// TestBothTimesOfAnAbsence are fields of old job files. The edge stops its tasks when it was
// told to, and what is ignored for that is said.
func TestBothTimesOfAnAbsence(t *testing.T) {
	j, problems := validate.DecodeJob([]byte(`{"ID": "j", "TaskGroups": [{"Name": "a", "MaxClientDisconnect": 5000000000, "StopAfterClientDisconnect": 60000000000,
		"Tasks": [{"Name": "t", "Driver": "raw_exec"}]}]}`))
	if err := slices.Concat(problems, validate.Job(j)).Err(); err != nil {
		t.Fatal(err)
	}
	d := j.TaskGroups[0].Disconnect
	if d == nil || d.LostAfter != nil || d.StopOnClientAfter == nil || *d.StopOnClientAfter != time.Minute {
		t.Errorf("%+v", d)
	}
	if w := strings.Join(validate.Warnings(j), "\n"); !strings.Contains(w, "max_client_disconnect at TaskGroups[0].MaxClientDisconnect is ignored") {
		t.Errorf("warnings: %s", w)
	}
}

func wantEqual[T any](tb testing.TB, what string, got, want T) {
	tb.Helper()
	if !reflect.DeepEqual(got, want) {
		g, _ := json.MarshalIndent(got, "", " ")
		w, _ := json.MarshalIndent(want, "", " ")
		tb.Errorf("%s: got %s\nwant %s", what, g, w)
	}
}

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
