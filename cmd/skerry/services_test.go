package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/cmd/edged"
	"skerry/edge/checks"
	"skerry/fleet"
	"skerry/hub"
)

// serveEnv makes this program a shop that serves its metrics at the address that the
// variable names.
const serveEnv = "SKERRY_TEST_SERVE"

// serveMetrics is the shop: it ends only with its task.
func serveMetrics(address string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "shop_open 1") })
	return http.ListenAndServe(address, mux)
}

// TestServicesForReal runs a hub, an edge and a task: the task listens where it was told
// to, its check passes, its deployment waits for that, and the catalogue says where it is.
func TestServicesForReal(t *testing.T) {
	t.Parallel()
	hubAddress := mustDev(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	job := fmt.Sprintf(`{"Job": {"ID": "shop", "Type": "service", "Datacenters": ["*"], "TaskGroups": [{
		"Name": "web", "ShutdownDelay": 8000000000, "Networks": [{"DynamicPorts": [{"Label": "http"}]}],
		"Update": {"MinHealthyTime": 1000000000},
		"Services": [{"Name": "shop", "Provider": "nomad", "PortLabel": "http", "Tags": ["scraped"], "Checks": [
			{"Name": "alive", "Type": "http", "Path": "/health", "Interval": 1000000000, "Timeout": 1000000000}]}],
		"Tasks": [{"Name": "serve", "Driver": "raw_exec", "Config": {"command": %q}, "Env": {%q: "${NOMAD_ADDR_http}"},
			"Resources": {"CPU": 50, "MemoryMB": 50}}]}]}}`, self, serveEnv)
	mustAnswer(t, http.MethodPut, hubAddress+"/v1/jobs", job, nil)

	var found []fleet.ServiceRegistration
	eventually(t, "the shop is open where the catalogue says", func() string {
		mustAnswer(t, http.MethodGet, hubAddress+"/v1/service/shop", "", &found)
		if len(found) != 1 {
			return fmt.Sprintf("%+v", found)
		}
		res, err := http.Get(fmt.Sprintf("http://%s:%d/metrics", found[0].Address, found[0].Port))
		if err != nil {
			return err.Error()
		}
		defer res.Body.Close()
		if b, err := io.ReadAll(res.Body); err != nil || string(b) != "shop_open 1\n" {
			return fmt.Sprintf("%q, %v", b, err)
		}
		return ""
	})
	var results map[string]fleet.CheckResult
	eventually(t, "its check passes", func() string {
		mustAnswer(t, http.MethodGet, hubAddress+"/v1/client/allocation/"+string(found[0].AllocID)+"/checks", "", &results)
		for _, r := range results {
			if r.Status == checks.Success && r.StatusCode == http.StatusNoContent {
				return ""
			}
		}
		return fmt.Sprintf("%+v", results)
	})
	var deployments []struct{ Status string }
	eventually(t, "the deployment is successful, its check passing", func() string {
		mustAnswer(t, http.MethodGet, hubAddress+"/v1/job/shop/deployments", "", &deployments)
		if len(deployments) == 1 && deployments[0].Status == "successful" {
			return ""
		}
		return fmt.Sprintf("%+v", deployments)
	})
	mustCloseAfterNotice(t, hubAddress, found[0])
}

// mustCloseAfterNotice stops the shop: it goes on serving who has found it for its
// shutdown_delay, and is found no more meanwhile.
func mustCloseAfterNotice(t *testing.T, hubAddress string, shop fleet.ServiceRegistration) {
	t.Helper()
	mustAnswer(t, http.MethodDelete, hubAddress+"/v1/job/shop?purge=false", "", nil)
	eventually(t, "the edge says that it waits", func() string {
		var a struct{ TaskStates map[string]fleet.TaskState }
		mustAnswer(t, http.MethodGet, hubAddress+"/v1/allocation/"+string(shop.AllocID), "", &a)
		events := a.TaskStates["serve"].Events
		if slices.ContainsFunc(events, func(e fleet.TaskEvent) bool { return e.Type == fleet.TaskWaitsToStop }) {
			return ""
		}
		return fmt.Sprintf("%+v", events)
	})
	address := fmt.Sprintf("http://%s:%d/metrics", shop.Address, shop.Port)
	res, err := http.Get(address)
	if err != nil {
		t.Fatalf("the shop closed without notice: %v", err)
	}
	res.Body.Close()
	var found []fleet.ServiceRegistration
	if err := answer(t, http.MethodGet, hubAddress+"/v1/service/shop", "", &found); err != nil || len(found) > 0 {
		t.Fatalf("a shop that closes is in the catalogue: %+v, %v", found, err)
	}
	eventually(t, "the shop has closed", func() string {
		if res, err := http.Get(address); err == nil {
			res.Body.Close()
			return "it answers"
		}
		return ""
	})
}

// mustDev runs a hub and an edge, and returns the address of the hub's API.
func mustDev(t *testing.T) string {
	t.Helper()
	return mustDevWith(t, edged.Flags{})
}

// mustDevWith runs a hub and an edge with flags, and returns the address of the hub's API.
func mustDevWith(t *testing.T, flags edged.Flags) string {
	t.Helper()
	cfg := hub.Config{
		Bootstrap: true, Name: "dev-hub", Bind: "127.0.0.1", DataDir: t.TempDir(),
		HTTPPort: mustPort(t), QUICPort: mustPort(t), GossipPort: mustPort(t),
	}
	t.Cleanup(func() { mustLeaveNothing(t, cfg.DataDir, leftoverBound) })
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context())) // the shop is closed first
	done := make(chan error, 1)
	go func() { done <- dev(ctx, cfg, flags, slog.New(slog.DiscardHandler), io.Discard) }()
	address := fmt.Sprintf("http://127.0.0.1:%d", cfg.HTTPPort)
	eventually(t, "the edge is a healthy client", func() string {
		var health struct{ Client *struct{ Ok bool } }
		if err := answer(t, http.MethodGet, address+"/v1/agent/health?type=client", "", &health); err != nil {
			return err.Error()
		}
		if health.Client == nil || !health.Client.Ok {
			return fmt.Sprintf("%+v", health)
		}
		return ""
	})
	t.Cleanup(func() {
		if err := answer(t, http.MethodDelete, address+"/v1/job/shop?purge=false", "", nil); err != nil {
			t.Error(err)
		}
		eventually(t, "the shop has ended", func() string {
			var allocs []struct{ ClientStatus string }
			mustAnswer(t, http.MethodGet, address+"/v1/job/shop/allocations", "", &allocs)
			for _, a := range allocs {
				if a.ClientStatus == "running" || a.ClientStatus == "pending" {
					return a.ClientStatus
				}
			}
			return ""
		})
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	eventually(t, "an edge is ready", func() string {
		var nodes []struct{ Status string }
		if err := answer(t, http.MethodGet, address+"/v1/nodes", "", &nodes); err != nil {
			return err.Error()
		}
		if len(nodes) != 1 || nodes[0].Status != "ready" {
			return fmt.Sprint(nodes)
		}
		return ""
	})
	return address
}

func mustPort(t *testing.T) int {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// eventually tries until missing says that nothing is.
func eventually(t *testing.T, what string, missing func() string) {
	t.Helper()
	if why := pollUntil(2*time.Minute, missing); why != "" {
		t.Fatalf("%s: not after 2 minutes: %s", what, why)
	}
}

// pollUntil polls until nothing is missing, or the bound has passed, and returns what is still missing.
func pollUntil(bound time.Duration, missing func() string) string {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(bound); ; <-tick.C {
		if why := missing(); why == "" || time.Now().After(deadline) {
			return why
		}
	}
}

func mustAnswer(t *testing.T, method, address, body string, out any) {
	t.Helper()
	if err := answer(t, method, address, body, out); err != nil {
		t.Fatal(err)
	}
}

// answer makes a request that may outlive the test's context, as its end does.
func answer(t *testing.T, method, address, body string, out any) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil || res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s %s %v", method, address, res.Status, b, err)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}
