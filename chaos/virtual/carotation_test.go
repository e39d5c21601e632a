package virtual_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"skerry/api"
	"skerry/chaos/virtual"
	"skerry/client"
	"skerry/edge/local"
	"skerry/fleet"
	"skerry/hub/state"
)

const caPath = "/v1/operator/ca"

// mustRotatingFleet starts three hubs and edges that send few heartbeats, and waits until all are ready.
func mustRotatingFleet(t *testing.T, dir string, edges int) *virtual.Cluster {
	t.Helper()
	cfg := virtual.Config{Dir: dir, Hubs: []string{"hub-1", "hub-2", "hub-3"}, Seed: 1, Tuning: virtual.Stretched, MinTTL: 2 * time.Minute}
	for i := range edges {
		cfg.Edges = append(cfg.Edges, virtual.EdgeConfig{Name: fmt.Sprintf("edge-%03d", i), Datacenter: "dc1"})
	}
	c, err := virtual.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	mustAllBecomeReady(t, c, c.Edges)
	return c
}

func mustAllBecomeReady(t *testing.T, c *virtual.Cluster, edges []*virtual.Edge) {
	t.Helper()
	for _, e := range edges {
		mustBecome(t, e, "ready", 10*time.Minute, ready)
	}
}

// mustRotate begins a rotation, and waits until every hub has a certificate of the new CA.
func mustRotate(t *testing.T, c *virtual.Cluster, grace time.Duration) {
	t.Helper()
	var begun api.RotatedCA
	mustDo(t, c, http.MethodPut, caPath+"/rotate", api.RotateCARequest{Grace: grace.String()}, &begun)
	mustSettle(t, c, begun.Number)
}

func mustSettle(t *testing.T, c *virtual.Cluster, number uint64) {
	t.Helper()
	mustCome(t, c, 5*time.Minute, fmt.Sprintf("a rotation to CA %d that is over", number), func(v *state.View) bool {
		newest := v.CAs().Newest()
		return newest.Number == number && newest.SettledAt != 0
	})
}

// mustStatus asks the hubs about the CAs.
func mustStatus(t *testing.T, c *virtual.Cluster) (s api.CAStatus) {
	t.Helper()
	mustDo(t, c, http.MethodGet, caPath, nil, &s)
	return s
}

// mustCertify waits until so many edges have certificates of a CA.
func mustCertify(t *testing.T, c *virtual.Cluster, number uint64, edges int) {
	t.Helper()
	mustCome(t, c, 3*time.Hour, fmt.Sprintf("%d edges with certificates of CA %d", edges, number), func(v *state.View) bool {
		n := 0
		for _, by := range v.CertifiedBy() {
			if by == number {
				n++
			}
		}
		return n == edges+len(c.Hubs)
	})
}

// mustNoTokens removes the join tokens from the disks: what comes back then does so by itself.
func mustNoTokens(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"join-token", "hub-join-token"} {
		if err := os.Remove(filepath.Join(dir, "hub-1", name)); err != nil {
			t.Fatal(err)
		}
	}
}

func stopAll(edges []*virtual.Edge) {
	for _, e := range edges {
		e.Stop()
	}
}

func mustStartAll(t *testing.T, edges []*virtual.Edge) {
	t.Helper()
	for _, e := range edges {
		if err := e.Start(); err != nil {
			t.Fatal(err)
		}
	}
}

// The CA is replaced under a fleet of which a fifth is away all the time. Who is there takes it over; of those that are
// away, a half comes back within the grace of the old CA and a half long after it, without a person and without a token.
// The one that was revoked does not.
func TestTheCAIsReplacedUnderAFleet(t *testing.T) {
	edges := 300
	if !whole() {
		edges = 20
	}
	dir := mustMemory(t)
	synctest.Test(t, func(t *testing.T) {
		c := mustRotatingFleet(t, dir, edges)
		defer mustClose(t, c)
		mustNoTokens(t, dir)
		away, there := c.Edges[:edges/5], c.Edges[edges/5:]
		stolen := away[len(away)-1]
		id := stolen.Agent().NodeID()
		stopAll(away)
		mustRotate(t, c, 100*day)
		mustCertify(t, c, 2, len(there))
		s := mustStatus(t, c)
		if s.UnderWay || s.Edges != edges || s.EdgesMissingTotal != len(away) || s.CAs[1].Edges != len(there) || s.CAs[0].EdgesCertified != len(away) {
			t.Fatalf("%+v", s)
		}

		mustRestart(t, c, 50*day) // every connection is made anew, and hubs accept each other's new certificates alone
		mustAllBecomeReady(t, c, there)
		soon, late := away[:len(away)/2], away[len(away)/2:]
		mustStartAll(t, soon)
		mustAllBecomeReady(t, c, soon)
		mustCertify(t, c, 2, len(there)+len(soon))

		mustRestart(t, c, 300*day)
		mustDo(t, c, http.MethodPut, "/v1/node/"+string(id)+"/revoke", map[string]any{"Reason": "stolen"}, nil)
		mustStartAll(t, late)
		mustAllBecomeReady(t, c, late[:len(late)-1])
		mustCertify(t, c, 2, edges-1)
		if got, err := stolen.Agent().Agent().Status(context.Background()); err != nil || got.Link.State == "connected" {
			t.Fatalf("the revoked edge is %s, %v", got.Link.State, err)
		}
		if s := mustStatus(t, c); s.EdgesMissingTotal != 0 || s.CAs[0].EdgesCertified != 0 || s.CAs[1].Edges != edges-1 {
			t.Fatalf("%+v", s)
		}
		mustAllBecomeReady(t, c, append(there, soon...))
	})
}

// An edge is off for 400 days, its clock starts in 1970, and meanwhile the CA was replaced twice, the second time with no
// grace at all. It comes back by itself, as the same node.
func TestFourHundredDaysAwayAndTwoCAs(t *testing.T) {
	dir := mustMemory(t)
	synctest.Test(t, func(t *testing.T) {
		c := mustRotatingFleet(t, dir, 2)
		defer mustClose(t, c)
		mustNoTokens(t, dir)
		e, node := c.Edges[0], c.Edges[0].Agent().NodeID()
		if err := e.Shutdown(); err != nil {
			t.Fatal(err)
		}
		mustRotate(t, c, 100*day)
		mustRestart(t, c, 200*day)
		mustAllBecomeReady(t, c, c.Edges[1:])
		mustRotate(t, c, 0)
		mustCertify(t, c, 3, 1)
		mustRestart(t, c, 200*day)
		e.Clock.Set(time.Unix(90, 0))
		if err := e.Boot(); err != nil {
			t.Fatal(err)
		}
		s := mustBecome(t, e, "back", 20*time.Minute, ready)
		if s.NodeID != node {
			t.Fatalf("back as %s", s.NodeID)
		}
		mustCertify(t, c, 3, 2)
		mustBecome(t, e, "without an error", time.Hour, func(s local.Status) bool { return ready(s) && s.Cert.LastError == "" })
	})
}

// A rotation waits for a hub that is down, whoever leads, and refuses another one meanwhile. No election is disturbed by
// certificates of two CAs.
func TestARotationWaitsForItsHubs(t *testing.T) {
	dir := mustMemory(t)
	synctest.Test(t, func(t *testing.T) {
		c := mustRotatingFleet(t, dir, 2)
		defer mustClose(t, c)
		mustDo(t, c, http.MethodPut, caPath+"/rotate", nil, nil)
		first := lead(t, c)
		if err := first.Crash(); err != nil { // most likely in the middle
			t.Fatal(err)
		}
		second := lead(t, c)
		time.Sleep(time.Minute)
		err := second.Call(context.Background(), http.MethodPut, caPath+"/rotate", nil, nil)
		if s := mustStatus(t, c); s.UnderWay {
			if client.StatusOf(err) != http.StatusConflict || !slices.Contains(s.HubsMissing, fleet.HubID(first.Name)) {
				t.Fatalf("another rotation: %v; %+v", err, s)
			}
		} else if err == nil {
			t.Fatal("a rotation began without a hub")
		}
		if err := first.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustSettle(t, c, 2)
		mustCertify(t, c, 2, 2)
		term := mustTerm(t, c)
		mustRotate(t, c, 400*day)
		mustCertify(t, c, 3, 2)
		if now := mustTerm(t, c); now != term {
			t.Errorf("the rotation took the hubs from term %d to %d", term, now)
		}
		mustAllBecomeReady(t, c, c.Edges)
	})
}

// mustTerm returns the hubs' term of Raft.
func mustTerm(t *testing.T, c *virtual.Cluster) uint64 {
	t.Helper()
	var h api.HealthAnswer
	mustDo(t, c, http.MethodGet, "/v1/operator/autopilot/health", nil, &h)
	if len(h.Servers) != len(c.Hubs) || !h.Healthy {
		t.Fatalf("hubs: %+v", h)
	}
	return h.Servers[0].LastTerm
}
