package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"skerry/cmd/edged"
	"skerry/drivers/docker"
	"skerry/drivers/docker/dockertest"
	"skerry/edge/consul/consultest"
	"skerry/fleet"
)

// publicRunsInside is set in the process that runs the public job files, in namespaces of its own.
const publicRunsInside = "SKERRY_TEST_PUBLIC_RUNS"

// publicRunBound bounds the wait for the tasks of a job on a loaded machine.
const publicRunBound = 5 * time.Minute

// publicCannotRun are the registered files whose tasks cannot run as they are written, with the reason and a part of
// the event that says so.
var publicCannotRun = map[string]struct{ reason, event string }{
	"c2m__spotwatch.nomad": {
		"they fail: their command `/opt/spotwatch` is a file of the machine, and the artifact is in the task's folder, as in Nomad", "/opt/spotwatch"},
	"legacy-jobspec__test-fixtures__task-nested-config.hcl": {
		"they fail: `port_map` names a port that no `network` block has", "the group has no port"},
}

// TestPublicJobFilesRun runs each public job file that is registered on a real edge with a real Docker and a real
// Podman: it is registered and placed, and its tasks run. Images and artifacts have the names that the files give
// them, and are made here of busybox. A table of docs/compatibility.md says how it ends; -rewrite writes it anew.
func TestPublicJobFilesRun(t *testing.T) {
	if testing.Short() {
		t.Skip("short: it needs real daemons; go test ./cmd/skerry -run TestPublicJobFilesRun runs it")
	}
	for _, name := range []string{docker.Docker, docker.Podman} {
		if err := dockertest.Missing(name); err != nil {
			t.Skipf("no %s: %v", name, err)
		}
	}
	if os.Getenv(publicRunsInside) == "" {
		runInNamespaces(t)
		return
	}
	runPublicJobs(t)
}

// runInNamespaces runs the test again in network and mount namespaces of its own: it changes nothing of the machine.
func runInNamespaces(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestPublicJobFilesRun$", "-test.v", fmt.Sprintf("-rewrite=%t", *rewrite))
	cmd.Env = append(os.Environ(), publicRunsInside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("run in namespaces: %v", err)
	}
}

// runPublicJobs registers the files, waits until each is where it should be, and compares the table.
func runPublicJobs(t *testing.T) {
	for _, c := range [][]string{
		{"ip", "link", "set", "lo", "up"}, {"mount", "-t", "tmpfs", "tmpfs", "/run"},
		// Templates ask for the address of the default route.
		{"ip", "link", "add", "uplink", "type", "bridge"}, {"ip", "addr", "add", "192.0.2.1/24", "dev", "uplink"},
		{"ip", "link", "set", "uplink", "up"}, {"ip", "route", "add", "default", "via", "192.0.2.254"},
	} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", c, err, out)
		}
	}
	jobs := map[string]*fleet.Job{}
	for _, name := range mustValidFiles(t) {
		if job, err := parsePublicJob(t, name); err == nil {
			jobs[name] = job
		}
	}
	names := slices.Sorted(maps.Keys(jobs))
	flags := edged.Flags{Containers: docker.Permissions{AllowPrivileged: true}}
	flags.Network.Volumes = []string{"host-nfs=" + t.TempDir()}
	flags.DockerSocket = mustPublicDaemon(t, docker.Docker, jobs)
	flags.PodmanSocket = mustPublicDaemon(t, docker.Podman, jobs)
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "#!/bin/sh\nexec sleep 3600\n")
	}))
	t.Cleanup(files.Close)
	consul := consultest.New()
	agent := httptest.NewServer(consul)
	t.Cleanup(agent.Close)
	flags.Consul.Address = agent.URL
	hubAddress := mustDevWith(t, flags)
	for i, name := range names {
		mustRegisterPublic(t, hubAddress, files.URL, fleet.JobID(fmt.Sprintf("public-%d", i)), jobs[name])
	}
	t.Cleanup(func() { mustStopJobs(t, hubAddress, jobs) })
	var table strings.Builder
	table.WriteString("| registered job file | driver | its tasks on an edge |\n|---|---|---|\n")
	for _, name := range names {
		fmt.Fprintf(&table, "| `%s` | `%s` | %s |\n", name, jobs[name].TaskGroups[0].Tasks[0].Driver, mustSettle(t, hubAddress, name, jobs[name]))
	}
	if hasAllCapabilities(t) && len(consul.Services()) == 0 {
		t.Error("no service is registered with Consul")
	}
	mustHaveTable(t, "public job runs", table.String())
}

// mustPublicDaemon starts a daemon that has all images of the jobs of its driver, and returns its socket.
func mustPublicDaemon(t *testing.T, driver string, jobs map[string]*fleet.Job) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sk") // sockets need a short path
	if err != nil {
		t.Fatal(err)
	}
	d, err := dockertest.New(dockertest.Config{Name: driver, Dir: dir, Bridge: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Remove(); err != nil {
			t.Error(err)
		}
	})
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	made := map[string]bool{}
	for _, job := range jobs {
		for _, g := range job.TaskGroups {
			for _, task := range g.Tasks {
				image, _ := task.Config["image"].(string)
				if task.Driver != driver || made[image] {
					continue
				}
				made[image] = true
				command, _ := task.Config["command"].(string)
				if err := d.Import(t.Context(), localImage(driver, image), mustImageFiles(t, command), `CMD ["/bin/sleep", "3600"]`); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return d.Socket
}

// localImage returns the name under which a daemon keeps an image that a job names.
func localImage(driver, image string) string {
	image = strings.TrimPrefix(image, "docker://")
	if driver == docker.Podman && !strings.Contains(image, "/") {
		image = "docker.io/library/" + image
	}
	if !strings.Contains(path.Base(image), ":") {
		image += ":latest"
	}
	return image
}

// mustImageFiles returns the files of an image with busybox, and with the command that a task names.
func mustImageFiles(t *testing.T, command string) []byte {
	t.Helper()
	box, err := dockertest.Busybox("")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	has := false
	for r := tar.NewReader(bytes.NewReader(box)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = w.WriteHeader(h)
		}
		if err == nil {
			_, err = io.Copy(w, r)
		}
		if err != nil {
			t.Fatal(err)
		}
		has = has || "/"+h.Name == command
	}
	if command != "" && !has {
		program := "#!/bin/sh\nexec sleep 3600\n"
		err = w.WriteHeader(&tar.Header{Name: strings.TrimPrefix(command, "/"), Mode: 0o755, Size: int64(len(program))})
		if err == nil {
			_, err = io.WriteString(w, program)
		}
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// mustRegisterPublic registers a job as it is, but for its id, its datacenters, its number of allocations and the
// host of its artifacts.
func mustRegisterPublic(t *testing.T, hubAddress, files string, id fleet.JobID, job *fleet.Job) {
	t.Helper()
	job.ID, job.Datacenters = id, []string{"*"}
	for i := range job.TaskGroups {
		g := &job.TaskGroups[i]
		g.Count = min(g.Count, 2)
		for k := range g.Tasks {
			for a := range g.Tasks[k].Artifacts {
				source := &g.Tasks[k].Artifacts[a].GetterSource
				*source = files + "/" + path.Base(*source)
			}
		}
	}
	body, err := json.Marshal(map[string]any{"Job": job})
	if err != nil {
		t.Fatal(err)
	}
	mustAnswer(t, http.MethodPut, hubAddress+"/v1/jobs", string(body), nil)
}

// mustSettle waits until the tasks of a job do what they should, and says what that is.
func mustSettle(t *testing.T, hubAddress, name string, job *fleet.Job) string {
	t.Helper()
	cannot, fails := publicCannotRun[name]
	done, verdict := fleet.ClientRunning, "run"
	if isPrivileged(job) {
		verdict = "run, if Docker may give a container all capabilities"
		fails, cannot.event, cannot.reason = !hasAllCapabilities(t), "unable to apply caps", verdict
	}
	if fleet.RunsToCompletion(job.Type) {
		done, verdict = fleet.ClientComplete, "run to their end"
	}
	wanted := 0
	for _, g := range job.TaskGroups {
		wanted += g.Count
	}
	type alloc struct {
		ClientStatus string
		TaskStates   map[string]json.RawMessage
	}
	ready := func(a alloc) bool {
		for _, raw := range a.TaskStates {
			var s fleet.TaskState
			if err := json.Unmarshal(raw, &s); err != nil {
				t.Fatal(err)
			}
			if fails {
				if strings.Contains(string(raw), cannot.event) {
					return true
				}
				continue
			}
			if s.Failed || s.StartedAt == nil || done == fleet.ClientRunning && s.State != fleet.TaskRunning {
				return false
			}
		}
		return !fails && a.ClientStatus == done && len(a.TaskStates) > 0
	}
	why := pollUntil(publicRunBound, func() string {
		var allocs []alloc
		mustAnswer(t, http.MethodGet, hubAddress+"/v1/job/"+string(job.ID)+"/allocations", "", &allocs)
		n := 0
		for _, a := range allocs {
			if ready(a) {
				n++
			}
		}
		if n >= wanted {
			return ""
		}
		state, _ := json.Marshal(allocs)
		return fmt.Sprintf("%d of %d: %s", n, wanted, state)
	})
	if why != "" {
		t.Errorf("%s: its tasks do not %s: %s", name, verdict, why)
	}
	if fails {
		return cannot.reason
	}
	return verdict
}

// isPrivileged reports whether a task of a job asks for a privileged container.
func isPrivileged(job *fleet.Job) bool {
	return slices.ContainsFunc(job.TaskGroups, func(g fleet.TaskGroup) bool {
		return slices.ContainsFunc(g.Tasks, func(task fleet.Task) bool { return task.Config["privileged"] == true })
	})
}

// hasAllCapabilities reports whether this process, and so a privileged container, has all capabilities of the kernel.
func hasAllCapabilities(t *testing.T) bool {
	t.Helper()
	last, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "CapBnd:")
	has, _, _ := strings.Cut(rest, "\n")
	bits, err := strconv.ParseUint(strings.TrimSpace(has), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(last)))
	if err != nil {
		t.Fatal(err)
	}
	return bits == 1<<(n+1)-1
}

// mustStopJobs stops the jobs and waits until their tasks have ended.
func mustStopJobs(t *testing.T, hubAddress string, jobs map[string]*fleet.Job) {
	t.Helper()
	for _, job := range jobs {
		mustAnswer(t, http.MethodDelete, hubAddress+"/v1/job/"+string(job.ID)+"?purge=false", "", nil)
	}
	for _, job := range jobs {
		eventually(t, "the tasks of "+string(job.ID)+" have ended", func() string {
			var allocs []struct{ ClientStatus string }
			mustAnswer(t, http.MethodGet, hubAddress+"/v1/job/"+string(job.ID)+"/allocations", "", &allocs)
			for _, a := range allocs {
				if a.ClientStatus == fleet.ClientRunning || a.ClientStatus == fleet.ClientPending {
					return a.ClientStatus
				}
			}
			return ""
		})
	}
}
