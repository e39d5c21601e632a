package virtual_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/chaos/fabric"
	"skerry/fleet"
	"skerry/fleet/validate"
	"skerry/hub/state"
	"skerry/hub/workload"
)

// The hubs with a variable and the key of an identity, the server of an artifact and the source of a template are gone for a week, in which the
// machine loses its power each day and the task's folder is damaged. No task fails to start, and events show how old the
// rendering is.
func TestAWeekWithoutHubsAndSources(t *testing.T) {
	dir := mustMemory(t)
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("tills={{ env \"TILLS\" }}\n"))
	}))
	defer source.Close()
	source.Config.SetKeepAlivesEnabled(false) // time stands still in the bubble while a connection is open
	synctest.Test(t, func(t *testing.T) {
		c := mustCluster(t, dir, 1, "edge-a")
		defer mustClose(t, c)
		job := service("till", 1)
		group := &job.TaskGroups[0]
		group.RestartPolicy = &fleet.RestartPolicy{Attempts: 0, Interval: time.Hour, Mode: fleet.RestartModeFail}
		task := &group.Tasks[0]
		task.Env = map[string]string{"TILLS": "4"}
		task.Artifacts = []fleet.TaskArtifact{{GetterSource: source.URL + "/till.tmpl"}}
		task.Templates = []fleet.Template{
			{SourcePath: "local/till.tmpl", DestPath: "local/till.conf"},
			{EmbeddedTmpl: `{{ with nomadVar "nomad/jobs/till" }}pin={{ .pin }}{{ end }}`, DestPath: "secrets/pin", ChangeMode: fleet.ChangeNoop},
		}
		task.Identity = &fleet.WorkloadIdentity{Name: fleet.DefaultIdentity, File: true, TTL: 2 * time.Hour}
		setPIN := func(pin string) {
			mustDo(t, c, http.MethodPut, "/v1/var/nomad/jobs/till", map[string]any{"Items": map[string]string{"pin": pin}}, nil)
		}
		setPIN("1234")
		validate.FillDefaults(job)
		mustRun(t, c, job)
		var id fleet.AllocID
		for a := range lead(t, c).State().View().AllocsByJob(fleet.DefaultNamespace, "till") {
			id = a.ID
		}
		e := c.Edge("edge-a")
		root := filepath.Join(e.Dir, "allocs", string(id), "t")
		local := filepath.Join(root, "local")
		mustHave := func(name, want string) {
			t.Helper()
			if b, err := os.ReadFile(filepath.Join(root, name)); string(b) != want {
				t.Fatalf("%s is %q, want %q: %v", name, b, want, err)
			}
		}

		readToken := func() string {
			t.Helper()
			b, err := os.ReadFile(filepath.Join(root, "secrets", "nomad_token"))
			if claims, refused := workload.Verify(string(b), lead(t, c).State().View().IdentityKey); err != nil || refused != nil || claims.AllocID != id {
				t.Fatalf("the token %q of %+v: %v, %v", b, claims, err, refused)
			}
			return string(b)
		}
		first := readToken()
		time.Sleep(time.Hour + time.Minute)
		token := readToken()
		if token == first {
			t.Fatal("the token is not renewed half-way to its end")
		}

		cut := c.Net.Cut(fabric.Hosts("edge-a"), fabric.Everyone, fabric.Both, fabric.Silent)
		source.Close()
		if err := os.Remove(filepath.Join(local, "till.tmpl")); err != nil {
			t.Fatal(err)
		}
		rendered, days := time.Now(), 7
		if testing.Short() {
			days = 1
		}
		for range days {
			time.Sleep(day)
			if err := errors.Join(e.PowerCut(), os.RemoveAll(local), os.Mkdir(local, 0o755), os.Remove(filepath.Join(root, "secrets", "pin")), os.Remove(filepath.Join(root, "secrets", "nomad_token")), e.Boot()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			s, err := e.Agent().Agent().Status(context.Background())
			if err != nil || len(s.Allocs) != 1 || s.Allocs[0].ClientStatus != fleet.ClientRunning {
				t.Fatalf("after %s: %v, %+v", time.Since(rendered), err, s.Allocs)
			}
			mustHave("local/till.conf", "tills=4\n")
			mustHave("secrets/pin", "pin=1234")
			mustHave("secrets/nomad_token", token) // which has expired
		}
		cut.Heal()
		mustCome(t, c, 10*time.Minute, "the hubs know of the week", func(v *state.View) bool {
			a, _ := v.Alloc(id)
			return a.ClientStatus == fleet.ClientRunning && nodesThatAre(v, fleet.NodeReady) == 1
		})
		setPIN("5678")
		time.Sleep(3 * time.Minute)
		mustHave("secrets/pin", "pin=5678")
		if readToken() == token {
			t.Error("the token was not renewed after the week")
		}

		a, _ := lead(t, c).State().View().Alloc(id)
		age := fmt.Sprintf("which is %dh", 24*days)
		if !slices.ContainsFunc(a.TaskStates["t"].Events, func(e fleet.TaskEvent) bool {
			return e.Type == fleet.TaskTemplate && strings.Contains(e.DisplayMessage, age)
		}) {
			t.Errorf("no event says of the rendering %q: %+v", age, a.TaskStates["t"].Events)
		}
		if a.TaskStates["t"].Failed {
			t.Errorf("the task has failed: %+v", a.TaskStates["t"])
		}
	})
}
