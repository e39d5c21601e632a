package docker_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"skerry/drivers/docker"
	"skerry/fleet"
)

// Containers of unknown allocations, and those that a reboot ended and others replaced, are removed. One that the daemon keeps delays no
// other.
func TestOrphansAmongContainers(t *testing.T) {
	type container struct{ id, alloc, task, boot, state string }
	containers := []container{
		{"kept-by-daemon", "unknown", "web", "boot", "exited"},
		{"unknown", "unknown", "db", "boot", "running"},
		{"known", "known", "web", "boot", "running"},
		{"known-ended", "known", "db", "boot", "exited"},
		{"before-reboot", "known", "web", "earlier", "exited"},
		{"before-reboot-unstarted", "known", "web", "earlier", "created"},
		{"before-reboot-runs", "known", "web", "earlier", "running"},
		{"before-reboot-last", "known", "cache", "earlier", "exited"},
	}
	var mu sync.Mutex
	var removed []string
	d := (&daemon{name: docker.Docker, socket: mustServeDaemon(t, func(w http.ResponseWriter, r *http.Request) {
		_, rest, _ := strings.Cut(r.URL.Path, "/containers/")
		id := strings.TrimSuffix(rest, "/json")
		i := slices.IndexFunc(containers, func(c container) bool { return c.id == id })
		switch {
		case strings.HasSuffix(r.URL.Path, "/containers/json"):
			var filters struct{ Label map[string]bool }
			_ = json.Unmarshal([]byte(r.URL.Query().Get("filters")), &filters)
			var list []map[string]any
			for _, c := range containers {
				labels := map[string]string{"io.skerry.alloc_id": c.alloc, "io.skerry.task": c.task, "io.skerry.boot_id": c.boot}
				for label := range filters.Label {
					name, value, _ := strings.Cut(label, "=")
					labels[name] = value
				}
				list = append(list, map[string]any{"Id": c.id, "Names": []string{c.id}, "Labels": labels, "State": c.state})
			}
			_ = json.NewEncoder(w).Encode(list)
		case r.Method == http.MethodDelete && i == 0:
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte(`{"message":"another container depends on it"}`))
		case r.Method == http.MethodDelete:
			mu.Lock()
			removed = append(removed, id)
			mu.Unlock()
			w.WriteHeader(http.StatusNoContent)
		case i >= 0:
			_ = json.NewEncoder(w).Encode(map[string]any{
				"Id": id, "State": map[string]string{"Status": containers[i].state}, "Config": map[string]any{"Labels": map[string]string{"io.skerry.boot_id": containers[i].boot}},
			})
		}
	})}).mustDriver(t, "boot", func(c *docker.Config) { c.DataDir = t.TempDir() })
	named, err := d.RemoveOrphans(t.Context(), func(id fleet.AllocID) bool { return id == "known" })
	if err == nil || !strings.Contains(err.Error(), "depends on it") || !slices.Equal(named, []string{"unknown"}) {
		t.Errorf("removed %q, %v; want unknown, and an error for the one that the daemon keeps", named, err)
	}
	if want := []string{"unknown", "before-reboot", "before-reboot-unstarted"}; !slices.Equal(removed, want) {
		t.Errorf("the daemon removed %q, want %q", removed, want)
	}
}
