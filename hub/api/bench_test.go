package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skerry/fleet/validate"
	"skerry/hub/access"
	hubapi "skerry/hub/api"
	"skerry/hub/audit"
	"skerry/hub/state"
)

// BenchmarkRegister registers a new job at each turn, in memory, without and with access control. What is more with it
// is what access control adds to a request: 3 % of a thousandth of a second are 30 µs.
func BenchmarkRegister(b *testing.B) {
	for _, name := range []string{"open", "acl"} {
		b.Run(name, func(b *testing.B) {
			h := &fakeHub{store: state.New(), leader: "hub1"}
			storeToken(b, h, "writer", `namespace "default" { policy = "write" }`)
			for i := range 1000 {
				storeToken(b, h, fmt.Sprint("other", i), `namespace "shop-*" { policy = "read" }`)
			}
			log, err := audit.Open(audit.Config{Dir: filepath.Join(b.TempDir(), "audit"), Hub: "hub1", Now: time.Now})
			if err != nil {
				b.Fatal(err)
			}
			defer log.Close()
			cfg := hubapi.Config{
				State: h.store, Cluster: h, Edges: h, Jobs: h, Garbage: h, Events: h, Secrets: secretsOf(h), Locks: locksOf(h), Hosts: testHosts, Drivers: validate.KnownDrivers{Names: []string{"sim"}}, Audit: log,
			}
			if name == "acl" {
				cfg.Access = access.New(access.Config{State: h.store})
			}
			a, err := hubapi.New(cfg)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r := httptest.NewRequest(http.MethodPut, "/v1/jobs", strings.NewReader(jobText("default", fmt.Sprint("job", i), "default", "")))
				r.Header.Set("X-Nomad-Token", "writer")
				w := httptest.NewRecorder()
				if a.ServeHTTP(w, r); w.Code != http.StatusOK {
					b.Fatal(w.Code, w.Body)
				}
			}
		})
	}
}
