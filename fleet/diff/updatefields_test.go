package diff_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/fleet/diff"
)

// updateOf says what a change of each field of a job means for a running allocation. A
// field that is added to the types has to be added here: decide as Nomad does, or write a
// row in docs/compatibility.md.
var updateOf = map[string]diff.GroupChange{
	// Of the job: kept for who reads it, written by the hub, or about its children.
	"Job.ID": diff.GroupSame, "Job.Stop": diff.GroupSame, "Job.Stable": diff.GroupSame, "Job.Status": diff.GroupSame,
	"Job.StatusDescription": diff.GroupSame, "Job.Version": diff.GroupSame, "Job.SubmitTime": diff.GroupSame,
	"Job.CreateIndex": diff.GroupSame, "Job.ModifyIndex": diff.GroupSame, "Job.JobModifyIndex": diff.GroupSame,
	"Job.VersionTag": diff.GroupSame, "Job.Ignored": diff.GroupSame, "Job.SpecHash": diff.GroupSame, "Job.UI": diff.GroupSame,
	"Job.Periodic": diff.GroupSame, "Job.ParameterizedJob": diff.GroupSame, "Job.ParentID": diff.GroupSame, "Job.Dispatched": diff.GroupSame,
	"Job.DispatchIdempotencyToken": diff.GroupSame, "Job.Payload": diff.GroupSame,
	// Refused at registration.
	"Job.Multiregion": diff.GroupSame, "Job.ConsulNamespace": diff.GroupSame, "Job.VaultNamespace": diff.GroupSame,

	"Job.Region": diff.GroupInPlace, "Job.Namespace": diff.GroupInPlace, "Job.Priority": diff.GroupInPlace, "Job.AllAtOnce": diff.GroupInPlace,
	"Job.Datacenters": diff.GroupInPlace, "Job.NodePool": diff.GroupInPlace, "Job.Constraints": diff.GroupInPlace,

	"Job.Name": diff.GroupDestructive, "Job.Type": diff.GroupDestructive, "Job.Meta": diff.GroupDestructive,
	"Job.Affinities": diff.GroupDestructive, "Job.Spreads": diff.GroupDestructive,

	"TaskGroup.Count": diff.GroupInPlace, "TaskGroup.Constraints": diff.GroupInPlace, "TaskGroup.RestartPolicy": diff.GroupInPlace,
	"TaskGroup.ReschedulePolicy": diff.GroupInPlace, "TaskGroup.Disconnect": diff.GroupInPlace, "TaskGroup.Update": diff.GroupInPlace,
	"TaskGroup.Migrate": diff.GroupInPlace, "TaskGroup.Services": diff.GroupInPlace, "TaskGroup.Scaling": diff.GroupInPlace,
	"TaskGroup.ShutdownDelay": diff.GroupInPlace, "TaskGroup.MaxRunDuration": diff.GroupInPlace,
	"TaskGroup.LocalControl": diff.GroupInPlace,

	"TaskGroup.Affinities": diff.GroupDestructive, "TaskGroup.Spreads": diff.GroupDestructive, "TaskGroup.EphemeralDisk": diff.GroupDestructive,
	"TaskGroup.Networks": diff.GroupDestructive, "TaskGroup.Volumes": diff.GroupDestructive, "TaskGroup.Consul": diff.GroupDestructive,
	"TaskGroup.Meta": diff.GroupDestructive,

	"Task.Constraints": diff.GroupInPlace, "Task.Services": diff.GroupInPlace, "Task.RestartPolicy": diff.GroupInPlace, "Task.KillTimeout": diff.GroupInPlace,
	"Task.KillSignal": diff.GroupInPlace, "Task.ShutdownDelay": diff.GroupInPlace, "Task.Leader": diff.GroupInPlace,
	"Task.ScalingPolicies": diff.GroupInPlace, "Task.Actions": diff.GroupInPlace,
	"LogConfig.MaxFiles": diff.GroupInPlace, "LogConfig.MaxFileSizeMB": diff.GroupInPlace, "LogConfig.Disabled": diff.GroupDestructive,

	"Task.Name": diff.GroupDestructive, "Task.Driver": diff.GroupDestructive, "Task.User": diff.GroupDestructive, "Task.Lifecycle": diff.GroupDestructive,
	"Task.Config": diff.GroupDestructive, "Task.Env": diff.GroupDestructive, "Task.Affinities": diff.GroupDestructive,
	"Task.Resources": diff.GroupDestructive, "Task.Meta": diff.GroupDestructive, "Task.Kind": diff.GroupDestructive,
	"Task.Artifacts": diff.GroupDestructive, "Task.Templates": diff.GroupDestructive, "Task.Vault": diff.GroupDestructive, "Task.Consul": diff.GroupDestructive,
	"Task.Secrets": diff.GroupDestructive, "Task.Identity": diff.GroupDestructive, "Task.Identities": diff.GroupDestructive,
	"Task.DispatchPayload": diff.GroupDestructive, "Task.VolumeMounts": diff.GroupDestructive, "Task.CSIPluginConfig": diff.GroupDestructive,
	"Task.Schedule": diff.GroupDestructive,
}

// TestUpdateOfEveryField changes each field of a job by itself.
func TestUpdateOfEveryField(t *testing.T) {
	open := maps.Clone(updateOf)
	check := func(of func(*fleet.Job) any) {
		typ := reflect.TypeOf(of(job())).Elem()
		for i := range typ.NumField() {
			name := typ.Name() + "." + typ.Field(i).Name
			if slices.Contains([]string{"Job.TaskGroups", "TaskGroup.Name", "TaskGroup.Tasks", "Task.LogConfig"}, name) {
				continue // what they consist of is, or a group of another name is another one
			}
			want, ok := updateOf[name]
			if !ok {
				t.Errorf("%s is new: say in updateOf what a change of it means for a running allocation", name)
				continue
			}
			delete(open, name)
			updated := job()
			field := reflect.ValueOf(of(updated)).Elem().Field(i)
			if field.Set(differentValue(t, field)); fmt.Sprint(reflect.ValueOf(of(job())).Elem().Field(i)) == fmt.Sprint(field) {
				t.Errorf("%s was not changed", name)
			}
			if got := diff.GroupUpdate(job(), updated, "a"); got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
	}
	check(func(j *fleet.Job) any { return j })
	check(func(j *fleet.Job) any { return &j.TaskGroups[0] })
	check(func(j *fleet.Job) any { return &j.TaskGroups[0].Tasks[0] })
	check(func(j *fleet.Job) any { return &j.TaskGroups[0].Tasks[0].LogConfig })
	for name := range open {
		t.Errorf("updateOf has %s, which no type has", name)
	}
}

// differentValue is a value of a field's type that differs from the one it has.
func differentValue(t *testing.T, v reflect.Value) reflect.Value {
	t.Helper()
	n := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.String:
		n.SetString(v.String() + "x")
	case reflect.Bool:
		n.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64:
		n.SetInt(v.Int() + 1)
	case reflect.Uint8, reflect.Uint64:
		n.SetUint(v.Uint() + 1)
	case reflect.Interface:
		n.Set(reflect.ValueOf("x"))
	case reflect.Pointer:
		n.Set(reflect.New(v.Type().Elem()))
		n.Elem().Set(differentValue(t, n.Elem()))
	case reflect.Slice:
		n.Set(reflect.Append(n, differentValue(t, reflect.New(v.Type().Elem()).Elem())))
	case reflect.Map:
		n.Set(reflect.MakeMap(v.Type()))
		n.SetMapIndex(differentValue(t, reflect.New(v.Type().Key()).Elem()), differentValue(t, reflect.New(v.Type().Elem()).Elem()))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return reflect.ValueOf(time.Unix(1, 0))
		}
		n.Set(v)
		n.Field(0).Set(differentValue(t, v.Field(0)))
	default:
		t.Fatalf("a field of kind %s: say how it is changed", v.Kind())
	}
	return n
}

// TestPreferencesOfAGroupDecide checks that the place and the order of affinities make no
// difference to a group, and that of a network only the resources of the node count.
func TestPreferencesOfAGroupDecide(t *testing.T) {
	fast := fleet.Affinity{LTarget: "${attr.cpu}", Operand: "=", RTarget: "fast", Weight: 50}
	near := fleet.Affinity{LTarget: "${node.site}", Operand: "=", RTarget: "near", Weight: 50}
	networks := func(change func(n *fleet.NetworkResource)) func(*fleet.Job) {
		return func(j *fleet.Job) {
			n := fleet.NetworkResource{ReservedPorts: []fleet.Port{{Label: "http", Value: 80}}}
			change(&n)
			j.TaskGroups[0].Networks = []fleet.NetworkResource{n}
		}
	}
	asIs := networks(func(*fleet.NetworkResource) {})
	for name, tc := range map[string]struct {
		was, is func(*fleet.Job)
		want    diff.GroupChange
	}{
		"moved to the task": {
			func(j *fleet.Job) { j.Affinities = []fleet.Affinity{fast, near} },
			func(j *fleet.Job) {
				j.Affinities, j.TaskGroups[0].Tasks[0].Affinities = []fleet.Affinity{near}, []fleet.Affinity{fast}
			}, diff.GroupInPlace,
		},
		"one less": {
			func(j *fleet.Job) { j.TaskGroups[0].Affinities = []fleet.Affinity{fast, near} },
			func(j *fleet.Job) { j.TaskGroups[0].Affinities = []fleet.Affinity{fast} }, diff.GroupDestructive,
		},
		"of another weight": {
			func(j *fleet.Job) { j.Affinities = []fleet.Affinity{fast} },
			func(j *fleet.Job) {
				a := fast
				a.Weight = 20
				j.Affinities = []fleet.Affinity{a}
			}, diff.GroupDestructive,
		},
		"spreads in another order": {
			func(j *fleet.Job) { j.Spreads = []fleet.Spread{{Attribute: "a"}, {Attribute: "b"}} },
			func(j *fleet.Job) { j.Spreads = []fleet.Spread{{Attribute: "b"}, {Attribute: "a"}} }, diff.GroupDestructive,
		},
		"a network's device":        {asIs, networks(func(n *fleet.NetworkResource) { n.Device, n.CIDR, n.IP = "eth0", "10.0.0.0/8", "10.0.0.1" }), diff.GroupInPlace},
		"a port that may be shared": {asIs, networks(func(n *fleet.NetworkResource) { n.ReservedPorts[0].IgnoreCollision = true }), diff.GroupInPlace},
		"another port":              {asIs, networks(func(n *fleet.NetworkResource) { n.ReservedPorts[0].Value = 81 }), diff.GroupDestructive},
	} {
		was, is := job(), job()
		tc.was(was)
		tc.is(is)
		if got := diff.GroupUpdate(was, is, "a"); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// TestMetaOfATaskDecides: where meta stands is the same to a task.
func TestMetaOfATaskDecides(t *testing.T) {
	was, is := job(), job()
	was.Meta = map[string]string{"k": "v"}
	is.TaskGroups[0].Meta = map[string]string{"k": "v"}
	if got := diff.GroupUpdate(was, is, "a"); got != diff.GroupInPlace {
		t.Errorf("moved from the job to the group: %s", got)
	}
	if got := diff.GroupUpdate(was, is, "b"); got != diff.GroupDestructive {
		t.Errorf("taken from another group: %s", got)
	}
	is.TaskGroups[0].Tasks = slices.Insert(is.TaskGroups[0].Tasks, 0, fleet.Task{Name: "s"})
	was.TaskGroups[0].Tasks = append(was.TaskGroups[0].Tasks, fleet.Task{Name: "s"})
	if got := diff.GroupUpdate(was, is, "a"); got != diff.GroupInPlace {
		t.Errorf("in another order: %s", got)
	}
}
