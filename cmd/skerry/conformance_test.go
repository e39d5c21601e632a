package main

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/fleet/jobspec"
)

// jobspecs has public job files from elsewhere, and the expected result of each.
const jobspecs = "../../../shared/conformance/jobspecs"

// mostAllocs is how many allocations of a file's group are run here.
const mostAllocs = 5

// TestJobFilesRun runs every job file whose driver is at hand on a hub and an edge, with real processes: batch jobs
// succeed, service jobs run. A file with an unsupported option is refused by name. Only the count and the node are
// changed.
func TestJobFilesRun(t *testing.T) {
	t.Parallel()
	hubAddress := mustDev(t)
	ran := 0
	for _, name := range mustFilesOf(t, "raw_exec") {
		job, err := parseForRegistration(t, name)
		if err != nil {
			var wrong jobspec.Diagnostics
			if !strings.Contains(err.Error(), "is not supported yet") && !(errors.As(err, &wrong) && driverLimit.MatchString(wrong[0].Message)) {
				t.Errorf("%s: %v", name, err)
			}
			t.Logf("%s is not run: %v", name, err)
			continue
		}
		if fetches(job) {
			t.Logf("%s is not run: its artifacts are on the Internet", name)
			continue
		}
		ran++
		t.Run(name, func(t *testing.T) { mustRunFile(t, hubAddress, job) })
	}
	if ran < 3 {
		t.Errorf("only %d files were run", ran)
	}
}

// fetches reports whether a task of a job has an artifact.
func fetches(job *fleet.Job) bool {
	for i := range job.TaskGroups {
		for k := range job.TaskGroups[i].Tasks {
			if len(job.TaskGroups[i].Tasks[k].Artifacts) > 0 {
				return true
			}
		}
	}
	return false
}

// mustRows reads the manifest of the public job files, a map from column to value for each.
func mustRows(t *testing.T) []map[string]string {
	t.Helper()
	f, err := os.Open(jobspecs + ".tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.Comma, r.FieldsPerRecord = '\t', -1
	lines, err := r.ReadAll()
	if err != nil || len(lines) < 2 {
		t.Fatalf("%s.tsv: %d rows, %v", jobspecs, len(lines), err)
	}
	var rows []map[string]string
	for _, line := range lines[1:] {
		row := map[string]string{}
		for i, name := range lines[0] {
			row[name] = line[i]
		}
		rows = append(rows, row)
	}
	return rows
}

// mustValidFiles lists the files that the manifest calls valid.
func mustValidFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, row := range mustRows(t) {
		if row["expected_parse"] == "ok" && row["expected_validate_offline"] == "ok" {
			files = append(files, row["file"])
		}
	}
	return files
}

// mustFilesOf lists the files that can be parsed and that need that driver, unless only the reference refuses them.
func mustFilesOf(t *testing.T, driver string) []string {
	t.Helper()
	var files []string
	for _, row := range mustRows(t) {
		if row["expected_parse"] == "ok" && row["drivers"] == driver {
			if _, err := parseForRegistration(t, row["file"]); err == nil || row["expected_validate_offline"] == "ok" {
				files = append(files, row["file"])
			}
		}
	}
	return files
}

func parseForRegistration(t *testing.T, name string) (*fleet.Job, error) {
	t.Helper()
	src, err := os.ReadFile(filepath.Join(jobspecs, name))
	if err != nil {
		t.Fatal(err)
	}
	return jobspec.Parse(name, src, jobspec.Options{ForRegistration: true})
}

// mustRunFile registers a job, waits until its allocations run or have completed, as its type says, and stops them.
func mustRunFile(t *testing.T, hubAddress string, job *fleet.Job) {
	job.ID = fleet.JobID(strings.ReplaceAll(t.Name(), "/", "-"))
	job.Datacenters = []string{"*"}
	wanted := 0
	for i := range job.TaskGroups {
		g := &job.TaskGroups[i]
		g.Count = min(g.Count, mostAllocs)
		wanted += g.Count
		for _, task := range g.Tasks {
			if command, _ := task.Config["command"].(string); command != "" {
				if _, err := exec.LookPath(command); err != nil {
					t.Fatalf("task %q cannot run on this machine: it has no command %q", task.Name, command)
				}
			}
		}
	}
	body, err := json.Marshal(map[string]any{"Job": job})
	if err != nil {
		t.Fatal(err)
	}
	path := hubAddress + "/v1/job/" + string(job.ID)
	mustAnswer(t, http.MethodPut, hubAddress+"/v1/jobs", string(body), nil)
	var allocs []struct {
		ID           fleet.AllocID
		ClientStatus string
		TaskStates   map[string]fleet.TaskState
	}
	done := fleet.ClientRunning
	if fleet.RunsToCompletion(job.Type) {
		done = fleet.ClientComplete
	}
	count := func(status string) int {
		mustAnswer(t, http.MethodGet, path+"/allocations", "", &allocs)
		n := 0
		for _, a := range allocs {
			if a.ClientStatus == status {
				n++
			}
		}
		return n
	}
	eventually(t, fmt.Sprintf("%d allocations are %s", wanted, done), func() string {
		if n := count(done); n == wanted && len(allocs) == wanted {
			return ""
		}
		return fmt.Sprintf("%+v", allocs)
	})
	for _, a := range allocs {
		for task, s := range a.TaskStates {
			if s.StartedAt == nil || s.Failed || done == fleet.ClientComplete && s.State != fleet.TaskDead {
				t.Errorf("task %s of %s: %+v", task, a.ID, s)
			}
		}
	}
	mustAnswer(t, http.MethodDelete, path+"?purge=false", "", nil)
	eventually(t, "all have ended", func() string {
		if n := count(fleet.ClientRunning) + count(fleet.ClientPending); n > 0 {
			return fmt.Sprintf("%d have not", n)
		}
		return ""
	})
}
