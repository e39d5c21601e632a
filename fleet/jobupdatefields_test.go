package fleet_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"skerry/fleet"
)

// updateOf says what a change of each field of a job means for a running allocation. A
// field that is added to the types has to be added here: decide as Nomad does, or write a
// row in docs/compatibility.md.
var updateOf = map[string]fleet.GroupChange{
	// Of the job: kept for who reads it, written by the hub, or about its children.
	"Job.ID": fleet.GroupSame, "Job.Stop": fleet.GroupSame, "Job.Stable": fleet.GroupSame, "Job.Status": fleet.GroupSame,
	"Job.StatusDescription": fleet.GroupSame, "Job.Version": fleet.GroupSame, "Job.SubmitTime": fleet.GroupSame,
	"Job.CreateIndex": fleet.GroupSame, "Job.ModifyIndex": fleet.GroupSame, "Job.JobModifyIndex": fleet.GroupSame,
	"Job.VersionTag": fleet.GroupSame, "Job.Ignored": fleet.GroupSame, "Job.SpecHash": fleet.GroupSame, "Job.UI": fleet.GroupSame,
	"Job.Periodic": fleet.GroupSame, "Job.ParameterizedJob": fleet.GroupSame, "Job.ParentID": fleet.GroupSame, "Job.Dispatched": fleet.GroupSame,
	"Job.DispatchIdempotencyToken": fleet.GroupSame, "Job.Payload": fleet.GroupSame,
	// Refused at registration.
	"Job.Multiregion": fleet.GroupSame, "Job.ConsulNamespace": fleet.GroupSame, "Job.VaultNamespace": fleet.GroupSame,

	"Job.Region": fleet.GroupInPlace, "Job.Namespace": fleet.GroupInPlace, "Job.Priority": fleet.GroupInPlace, "Job.AllAtOnce": fleet.GroupInPlace,
	"Job.Datacenters": fleet.GroupInPlace, "Job.NodePool": fleet.GroupInPlace, "Job.Constraints": fleet.GroupInPlace,

	"Job.Name": fleet.GroupDestructive, "Job.Type": fleet.GroupDestructive, "Job.Meta": fleet.GroupDestructive,
	"Job.Affinities": fleet.GroupDestructive, "Job.Spreads": fleet.GroupDestructive,

	"TaskGroup.Count": fleet.GroupInPlace, "TaskGroup.Constraints": fleet.GroupInPlace, "TaskGroup.RestartPolicy": fleet.GroupInPlace,
	"TaskGroup.ReschedulePolicy": fleet.GroupInPlace, "TaskGroup.Disconnect": fleet.GroupInPlace, "TaskGroup.Update": fleet.GroupInPlace,
	"TaskGroup.Migrate": fleet.GroupInPlace, "TaskGroup.Services": fleet.GroupInPlace, "TaskGroup.Scaling": fleet.GroupInPlace,
	"TaskGroup.ShutdownDelay": fleet.GroupInPlace, "TaskGroup.MaxRunDuration": fleet.GroupInPlace,

	"TaskGroup.Affinities": fleet.GroupDestructive, "TaskGroup.Spreads": fleet.GroupDestructive, "TaskGroup.EphemeralDisk": fleet.GroupDestructive,
	"TaskGroup.Networks": fleet.GroupDestructive, "TaskGroup.Volumes": fleet.GroupDestructive, "TaskGroup.Consul": fleet.GroupDestructive,
	"TaskGroup.Meta": fleet.GroupDestructive,

	"Task.Constraints": fleet.GroupInPlace, "Task.Services": fleet.GroupInPlace, "Task.RestartPolicy": fleet.GroupInPlace, "Task.KillTimeout": fleet.GroupInPlace,
	"Task.KillSignal": fleet.GroupInPlace, "Task.ShutdownDelay": fleet.GroupInPlace, "Task.Leader": fleet.GroupInPlace,
	"Task.ScalingPolicies": fleet.GroupInPlace, "Task.Actions": fleet.GroupInPlace,
	"LogConfig.MaxFiles": fleet.GroupInPlace, "LogConfig.MaxFileSizeMB": fleet.GroupInPlace, "LogConfig.Disabled": fleet.GroupDestructive,

	"Task.Name": fleet.GroupDestructive, "Task.Driver": fleet.GroupDestructive, "Task.User": fleet.GroupDestructive, "Task.Lifecycle": fleet.GroupDestructive,
	"Task.Config": fleet.GroupDestructive, "Task.Env": fleet.GroupDestructive, "Task.Affinities": fleet.GroupDestructive,
	"Task.Resources": fleet.GroupDestructive, "Task.Meta": fleet.GroupDestructive, "Task.Kind": fleet.GroupDestructive,
	"Task.Artifacts": fleet.GroupDestructive, "Task.Templates": fleet.GroupDestructive, "Task.Vault": fleet.GroupDestructive, "Task.Consul": fleet.GroupDestructive,
	"Task.Secrets": fleet.GroupDestructive, "Task.Identity": fleet.GroupDestructive, "Task.Identities": fleet.GroupDestructive,
	"Task.DispatchPayload": fleet.GroupDestructive, "Task.VolumeMounts": fleet.GroupDestructive, "Task.CSIPluginConfig": fleet.GroupDestructive,
	"Task.Schedule": fleet.GroupDestructive,
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
			if got := fleet.GroupUpdate(job(), updated, "a"); got != want {
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
		want    fleet.GroupChange
	}{
		"moved to the task": {
			func(j *fleet.Job) { j.Affinities = []fleet.Affinity{fast, near} },
			func(j *fleet.Job) {
				j.Affinities, j.TaskGroups[0].Tasks[0].Affinities = []fleet.Affinity{near}, []fleet.Affinity{fast}
			}, fleet.GroupInPlace,
		},
		"one less": {
			func(j *fleet.Job) { j.TaskGroups[0].Affinities = []fleet.Affinity{fast, near} },
			func(j *fleet.Job) { j.TaskGroups[0].Affinities = []fleet.Affinity{fast} }, fleet.GroupDestructive,
		},
		"of another weight": {
			func(j *fleet.Job) { j.Affinities = []fleet.Affinity{fast} },
			func(j *fleet.Job) {
				a := fast
				a.Weight = 20
				j.Affinities = []fleet.Affinity{a}
			}, fleet.GroupDestructive,
		},
		"spreads in another order": {
			func(j *fleet.Job) { j.Spreads = []fleet.Spread{{Attribute: "a"}, {Attribute: "b"}} },
			func(j *fleet.Job) { j.Spreads = []fleet.Spread{{Attribute: "b"}, {Attribute: "a"}} }, fleet.GroupDestructive,
		},
		"a network's device":        {asIs, networks(func(n *fleet.NetworkResource) { n.Device, n.CIDR, n.IP = "eth0", "10.0.0.0/8", "10.0.0.1" }), fleet.GroupInPlace},
		"a port that may be shared": {asIs, networks(func(n *fleet.NetworkResource) { n.ReservedPorts[0].IgnoreCollision = true }), fleet.GroupInPlace},
		"another port":              {asIs, networks(func(n *fleet.NetworkResource) { n.ReservedPorts[0].Value = 81 }), fleet.GroupDestructive},
	} {
		was, is := job(), job()
		tc.was(was)
		tc.is(is)
		if got := fleet.GroupUpdate(was, is, "a"); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// TestMetaOfATaskDecides: where meta stands is the same to a task.
func TestMetaOfATaskDecides(t *testing.T) {
	was, is := job(), job()
	was.Meta = map[string]string{"k": "v"}
	is.TaskGroups[0].Meta = map[string]string{"k": "v"}
	if got := fleet.GroupUpdate(was, is, "a"); got != fleet.GroupInPlace {
		t.Errorf("moved from the job to the group: %s", got)
	}
	if got := fleet.GroupUpdate(was, is, "b"); got != fleet.GroupDestructive {
		t.Errorf("taken from another group: %s", got)
	}
	is.TaskGroups[0].Tasks = slices.Insert(is.TaskGroups[0].Tasks, 0, fleet.Task{Name: "s"})
	was.TaskGroups[0].Tasks = append(was.TaskGroups[0].Tasks, fleet.Task{Name: "s"})
	if got := fleet.GroupUpdate(was, is, "a"); got != fleet.GroupInPlace {
		t.Errorf("in another order: %s", got)
	}
}
