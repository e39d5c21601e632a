package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"
)

// jobFrames have the fields that an object of a job must have, by the name of Nomad's type.
var jobFrames = map[string]string{
	"Job": `{"ID": "j", "Name": "j", "Type": "service"}`, "TaskGroup": `{"Name": "g"}`,
	"Task":       `{"Name": "t", "Driver": "docker", "Config": {"image": "shop"}}`,
	"Constraint": `{"LTarget": "${attr.a}", "RTarget": "1", "Operand": "="}`, "Affinity": `{"LTarget": "${attr.a}", "RTarget": "1", "Operand": "=", "Weight": 50}`,
	"Spread": `{"Attribute": "${node.datacenter}", "Weight": 50}`, "SpreadTarget": `{"Value": "a", "Percent": 50}`,
	"Service": `{"Name": "s", "Provider": "nomad", "PortLabel": "80"}`, "ServiceCheck": `{"Type": "http", "Path": "/", "Interval": 1000000000, "Timeout": 1000000000}`,
	"Secret": `{"Name": "s", "Provider": "nomad", "Path": "nomad/jobs"}`,
	"Port":   `{"Label": "p"}`, "ScalingPolicy": `{"Min": 0, "Max": 3}`, "Action": `{"Name": "a", "Command": "b"}`,
	"UpdateStrategy": `{"Canary": 1}`, "ReschedulePolicy": `{"Interval": 86400000000000}`, "TaskLifecycle": `{"Hook": "prestart"}`, "VolumeRequest": `{"Type": "host", "Source": "s"}`,
	"TaskArtifact": `{"GetterSource": "s"}`, "Template": `{"EmbeddedTmpl": "x", "DestPath": "y"}`, "RequestedDevice": `{"Name": "gpu"}`,
	"WorkloadIdentity": `{"Name": "x"}`,
	"VolumeMount":      `{"Volume": "v", "Destination": "/v"}`,
	"PeriodicConfig":   `{"Specs": ["@daily"]}`, "JobUILink": `{"Label": "l", "URL": "https://example.com"}`,
}

// jobNeeds have the fields that a field needs beside it, by its key; null removes a field.
var jobNeeds = map[string]string{
	"Periodic": `{"Type": "batch"}`, "ParameterizedJob": `{"Type": "batch"}`, "Spec": `{"Specs": null}`,
	"FailuresBeforeWarning": `{"FailuresBeforeCritical": 9}`, "CNI": `{"Mode": "cni/x"}`,
	"Tasks": `{"Volumes": {"v": {"Type": "host", "Source": "s"}, "w": {"Type": "host", "Source": "s"}}}`,
}

// jobValues are values, in JSON, for fields that do not take every value. Their key is TYPE.FIELD,
// or the last two keys of the path where a type is used in several places.
var jobValues = map[string]string{
	"Secret.Config":      `{"namespace": "default"}`,
	"TaskLifecycle.Hook": `"poststart"`, "Service.PortLabel": `"81"`, "Service.OnUpdate": `"ignore"`, "ServiceCheck.OnUpdate": `"ignore"`,
	"Resources.MemoryMaxMB": `600`, "LogConfig.Enabled": `false`, "Task.KillSignal": `"SIGINT"`, "0.Type": `"vertical_mem"`, "Scaling.Type": `"horizontal"`,
	"DisconnectStrategy.StopOnClientAfter": `60000000000`, "TaskGroup.StopAfterClientDisconnect": `60000000000`, "MigrateStrategy.HealthCheck": `"task_states"`,
	"PeriodicConfig.Spec": `"@hourly"`, "PeriodicConfig.Specs": `["@hourly"]`, "PeriodicConfig.SpecType": `"cron"`, "PeriodicConfig.TimeZone": `"Europe/Berlin"`,
	"ParameterizedJobConfig.Payload": `"required"`,
	"Job.Type":                       `"batch"`, "Job.Region": `"global"`, "Job.Namespace": `"default"`, "Job.ID": `"j"`, "Job.Priority": `70`,
	"Constraint.Operand": `"!="`, "Affinity.Operand": `"!="`, "RestartPolicy.Mode": `"delay"`,
	"ReschedulePolicy.DelayFunction": `"constant"`, "DisconnectStrategy.Reconcile": `"keep_original"`, "UpdateStrategy.HealthCheck": `"task_states"`,
	"ServiceCheck.Type": `"tcp"`, "ServiceCheck.InitialStatus": `"passing"`, "TaskArtifact.GetterMode": `"file"`,
	"Template.ChangeMode": `"noop"`, "Template.ChangeSignal": `"SIGUSR1"`, "Template.Perms": `"600"`, "Template.LeftDelim": `"<<"`,
	"Vault.ChangeMode": `"noop"`, "Vault.ChangeSignal": `"SIGUSR1"`,
	"WorkloadIdentity.Name": `"y"`, "WorkloadIdentity.ChangeMode": `"restart"`, "WorkloadIdentity.ChangeSignal": `"SIGUSR1"`, "WorkloadIdentity.TTL": `60000000000`,
	"VolumeMount.Volume": `"w"`, "VolumeMount.Destination": `"/w"`, "VolumeMount.PropagationMode": `"host-to-task"`,
	"VolumeRequest.AccessMode": `"single-node-single-writer"`, "VolumeRequest.AttachmentMode": `"file-system"`, "NetworkResource.Mode": `"bridge"`,
	"Task.Driver": `"sim"`, "Task.Config": `{"command": "/bin/false"}`, "Service.Provider": `"nomad"`, "Service.AddressMode": `"host"`,
}

// shownElsewhere maps the beginning of a path to the one at which the job is read back.
var shownElsewhere = map[string]string{
	"Migrate.": "TaskGroups.0.Migrate.", "Reschedule.": "TaskGroups.0.ReschedulePolicy.",
	"TaskGroups.0.MaxClientDisconnect":       "TaskGroups.0.Disconnect.LostAfter",
	"TaskGroups.0.StopAfterClientDisconnect": "TaskGroups.0.Disconnect.StopOnClientAfter",
}

// passedOver are the fields that are neither honoured, nor refused, nor warned of, and why.
var passedOver = map[string]string{
	"Job.Status": theHubWrites, "Job.StatusDescription": theHubWrites, "Job.Stable": theHubWrites, "Job.Version": theHubWrites,
	"Job.SubmitTime": theHubWrites, "Job.CreateIndex": theHubWrites, "Job.ModifyIndex": theHubWrites, "Job.JobModifyIndex": theHubWrites,
	"JobVersionTag.Name": theHubWrites, "JobVersionTag.Description": theHubWrites, "JobVersionTag.TaggedTime": theHubWrites,
	"LogConfig.Enabled":                 "read into Disabled, which says the opposite: TestAttributes",
	"TaskGroup.PreventRescheduleOnLost": "read into Disconnect.Replace, which says the opposite: TestBothTimesOfAnAbsence",
}

const theHubWrites = "the hub writes it: who reads a job, changes it and registers it again sends it back"

// jobField is a field of a job that holds a value, and not an object.
type jobField struct {
	path  []string // keys and indexes
	owner string   // its TYPE.FIELD
	hcl   string   // its name in a job file, if it has one
	kind  reflect.Type
}

// eachJobField visits the fields of f, which is a job or an object in one.
func eachJobField(f jobField, visit func(jobField)) {
	in := func(key string, t reflect.Type) jobField {
		return jobField{append(slices.Clone(f.path), key), f.owner, f.hcl, t}
	}
	switch t := f.kind; {
	case t.Kind() == reflect.Pointer:
		f.kind = t.Elem()
		eachJobField(f, visit)
	case !holdsObjects(t):
		visit(f)
	case t.Kind() == reflect.Slice:
		eachJobField(in("0", t.Elem()), visit)
	case t.Kind() == reflect.Map:
		eachJobField(in("x", t.Elem()), visit)
	default:
		for i := range t.NumField() {
			of := t.Field(i)
			field := in(jsonKey(of), of.Type)
			field.owner = t.Name() + "." + of.Name
			field.hcl, _, _ = strings.Cut(of.Tag.Get("hcl"), ",")
			eachJobField(field, visit)
		}
	}
}

func holdsObjects(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return holdsObjects(t.Elem())
	}
	return t.Kind() == reflect.Struct && !slices.Contains(structs, t)
}

func jsonKey(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return cmpOr(f.Name, name)
}

// framedJob is a job with a value at a path and the fields that must be around it; nil: with
// those fields alone.
func framedJob(t reflect.Type, path []string, value any) any {
	if t.Kind() == reflect.Pointer {
		return framedJob(t.Elem(), path, value)
	}
	if !holdsObjects(t) {
		return value
	}
	switch t.Kind() {
	case reflect.Slice:
		return []any{framedJob(t.Elem(), rest(path), value)}
	case reflect.Map:
		return map[string]any{"x": framedJob(t.Elem(), rest(path), value)}
	}
	object := map[string]any{}
	if frame := jobFrames[t.Name()]; frame != "" {
		mustMerge(object, frame)
	}
	for i := range t.NumField() {
		f := t.Field(i)
		onTheWay := len(path) > 0 && path[0] == jsonKey(f)
		switch isNeeded := f.Name == "TaskGroups" || f.Name == "Tasks"; {
		case onTheWay && (value != nil || holdsObjects(f.Type)):
			if needs := jobNeeds[jsonKey(f)]; needs != "" {
				mustMerge(object, needs)
			}
			object[jsonKey(f)] = framedJob(f.Type, path[1:], value)
			if list, _ := object[jsonKey(f)].([]any); f.Name == "ScalingPolicies" && list[0].(map[string]any)["Type"] == nil {
				list[0].(map[string]any)["Type"] = "vertical_cpu"
			}
		case isNeeded:
			object[f.Name] = framedJob(f.Type, nil, nil)
		}
	}
	return object
}

func mustMerge(object map[string]any, text string) {
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		panic(err)
	}
}

func rest(path []string) []string { return path[min(1, len(path)):] }

// valueOf is a value for a field that is not its default.
func (f jobField) valueOf(byDefault any) (v any) {
	given := jobValues[f.owner]
	if n := len(f.path); given == "" && n > 1 {
		given = jobValues[f.path[n-2]+"."+f.path[n-1]]
	}
	if given != "" {
		if err := json.Unmarshal([]byte(given), &v); err != nil {
			panic(err)
		}
		return v
	}
	number, _ := byDefault.(float64)
	switch f.kind {
	case reflect.TypeFor[time.Duration]():
		return number + float64(time.Second)
	case reflect.TypeFor[time.Time]():
		return "2026-01-01T00:00:00Z"
	case reflect.TypeFor[[]byte]():
		return "eA=="
	}
	switch f.kind.Kind() {
	case reflect.Bool:
		return byDefault != true
	case reflect.String:
		return "x"
	case reflect.Slice:
		if f.kind.Elem().Kind() == reflect.String {
			return []any{"x"}
		}
		return []any{1.0}
	case reflect.Map:
		if f.kind.Elem().Kind() == reflect.Slice {
			return map[string]any{"k": []any{"v"}}
		}
		return map[string]any{"k": "v"}
	}
	return number + 1
}

// isNamedIn reports whether a refusal names the field, or an object that the job has only for the
// field.
func (f jobField) isNamedIn(refusal string) bool {
	at, around := "", map[string]bool{"TaskGroups": true, "TaskGroups[0]": true, "TaskGroups[0].Tasks": true, "TaskGroups[0].Tasks[0]": true}
	for _, key := range f.path {
		if _, err := strconv.Atoi(key); err == nil {
			at += "[" + key + "]"
		} else {
			at = strings.TrimPrefix(at+"."+key, ".")
		}
		if !around[at] && regexp.MustCompile(`(?m)(^|[ ;])`+regexp.QuoteMeta(at)+`:`).MatchString(refusal) {
			return true
		}
	}
	return false
}

// shownAt returns the value of the field in a job that was read back.
func (f jobField) shownAt(job any) any {
	path := strings.Join(f.path, ".")
	for begin, elsewhere := range shownElsewhere {
		if tail, ok := strings.CutPrefix(path, begin); ok {
			path = elsewhere + tail
		}
	}
	for key := range strings.SplitSeq(path, ".") {
		switch v := job.(type) {
		case map[string]any:
			job = v[key]
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i >= len(v) {
				return nil
			}
			job = v[i]
		default:
			return nil
		}
	}
	return job
}

// registration is the answer to the registration of a job.
type registration struct {
	refusal, warnings string
	job               any // as it is read back
}

func mustRegisterTree(tb testing.TB, url string, tree any) (r registration) {
	tb.Helper()
	b := mustJSON(tb, map[string]any{"Job": tree})
	status, said := mustPut(tb, url+"/v1/jobs", b)
	if status != http.StatusOK {
		r.refusal = said
		return r
	}
	var answer nomad.JobRegisterResponse
	if err := json.Unmarshal([]byte(said), &answer); err != nil {
		tb.Fatal(err, said)
	}
	r.warnings = answer.Warnings
	_, said = mustGet(tb, url+"/v1/job/"+tree.(map[string]any)["ID"].(string))
	if err := json.Unmarshal([]byte(said), &r.job); err != nil {
		tb.Fatal(err, said)
	}
	return r
}

// TestNoFieldOfAJobIsPassedOver registers a job for each field that Nomad's published client has.
// The job that is read back has the field, or a refusal or a warning names it.
func TestNoFieldOfAJobIsPassedOver(t *testing.T) {
	_, srv, _ := mustServe(t)
	seen, outcomes, n := map[string]bool{}, map[string]int{}, 0
	register := func(f jobField, path []string, value any) registration {
		n++
		tree := framedJob(reflect.TypeFor[nomad.Job](), path, value).(map[string]any)
		if f.owner == "TaskGroup.MaxRunDuration" {
			tree["Type"] = "batch"
		}
		if f.owner != "Job.ID" || value == nil {
			tree["ID"] = fmt.Sprintf("j%d", n)
		}
		return mustRegisterTree(t, srv.URL, tree)
	}
	eachJobField(jobField{kind: reflect.TypeFor[nomad.Job]()}, func(f jobField) {
		path := strings.Join(f.path, ".")
		plain := register(f, f.path, nil)
		value := f.valueOf(f.shownAt(plain.job))
		asked := register(f, f.path, value)
		switch {
		case passedOver[f.owner] != "":
			seen[f.owner] = true
			outcomes["passed over"]++
		case asked.refusal != "":
			outcomes["refused"]++
			if !f.isNamedIn(asked.refusal) || !strings.Contains(asked.refusal, "not supported") && !strings.Contains(asked.refusal, "not known") {
				t.Errorf("%s = %v: neither refused by its name nor taken: %s", path, value, asked.refusal)
			}
		case regexp.MustCompile(`\b(` + f.path[len(f.path)-1] + `|` + f.hcl + `) (at|of) .*is ignored`).MatchString(asked.warnings):
			outcomes["warned of"]++
		case !reflect.DeepEqual(f.shownAt(asked.job), value):
			t.Errorf("%s = %v: taken, and the job that is read back has %v; warnings %q", path, value, f.shownAt(asked.job), asked.warnings)
		default:
			outcomes["honoured"]++
		}
	})
	for owner := range passedOver {
		if !seen[owner] {
			t.Errorf("passedOver: Nomad's job has no %s", owner)
		}
	}
	t.Log(outcomes)
}
