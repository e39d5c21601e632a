package hub_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/syncproto"
	"skerry/syncproto/enroll"
	"skerry/syncproto/transport"
)

// A stolen edge is expelled through one hub while another one serves it: its session
// ends, it gets neither another one nor a certificate, and what it ran is replaced.
func TestRevokedEdgeIsExpelled(t *testing.T) {
	hubs := mustCluster(t, 2)
	stolen := mustEnroll(t, hubs[1], hubs[0].JoinToken())
	first := stolen.mustConnect(hubs[1])
	hubs[0].mustRegister(job("shop"))
	alloc := stolen.expectRun(first)
	stolen.reportTransition(runningTransition(alloc.ID))
	other := mustEnroll(t, hubs[0], hubs[0].JoinToken())
	desired := other.mustConnect(hubs[0])

	began := time.Now()
	hubs[0].mustRequest("PUT", "/v1/node/"+string(stolen.id)+"/revoke", map[string]string{"Reason": "stolen"}, nil)
	select {
	case <-stolen.conn.Done():
	case <-time.After(testTimeout):
		t.Fatal("its session goes on")
	}
	t.Logf("the session ended %s after the request", time.Since(began).Round(time.Millisecond))
	if replacement := other.expectRun(desired); replacement.ID == alloc.ID || replacement.JobID != "shop" {
		t.Errorf("the other edge is told to run %+v", replacement)
	}
	for _, h := range hubs {
		var n fleet.Node
		h.mustRequest("GET", "/v1/node/"+string(stolen.id), nil, &n)
		if n.Status != fleet.NodeDown || n.Revoked == nil || !slices.Equal(n.Orphans, []fleet.AllocID{alloc.ID}) {
			t.Errorf("hub %s shows %+v", h.cfg.Name, n)
		}
		if code := refusalOf(t, stolen, h); code != fleet.CodeRevoked {
			t.Errorf("hub %s: a new connection gives %q", h.cfg.Name, code)
		}
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		_, _, err := enroll.Enroll(ctx, stolen.endpoint, mustAddr(t, h.QUICAddr()), enroll.Applicant{
			Held: stolen.identity, Role: fleet.RoleEdge, ID: string(stolen.id), Key: stolen.identity.Key, Now: time.Now,
		})
		cancel()
		if fleet.CodeOf(err) != fleet.CodeRevoked {
			t.Errorf("hub %s: renewal: %v", h.cfg.Name, err)
		}
	}
	var list []fleet.Revocation
	hubs[1].mustRequest("GET", "/v1/node/revocations", nil, &list)
	if len(list) != 1 || list[0].NodeID != stolen.id || len(list[0].Serials) == 0 || list[0].Reason != "stolen" {
		t.Errorf("revocations %+v", list)
	}
}

// refusalOf connects an edge and returns why the hub ends the connection.
func refusalOf(tb testing.TB, e *edge, h *runningHub) fleet.Code {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), testTimeout)
	defer cancel()
	conn, err := e.endpoint.Dial(ctx, transport.DialConfig{
		Addr: mustAddr(tb, h.QUICAddr()), ALPN: syncproto.ALPNEdge, TLS: e.identity.ClientTLS(time.Now),
	})
	if err != nil {
		return fleet.CodeOf(err)
	}
	select {
	case <-conn.Done():
		return fleet.CodeOf(conn.Err())
	case <-ctx.Done():
		return ""
	}
}

// The HTTP API is served with the bounds of package httpserver.
func TestHTTPClientsAreBounded(t *testing.T) {
	cfg := config(t, "hub-1")
	cfg.Bootstrap = true
	h := mustStart(t, cfg)
	h.mustBeReady()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+h.HTTPAddr()+"/v1/regions", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Long", strings.Repeat("x", 300<<10))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header of 300 KiB is answered %s", res.Status)
	}
}
