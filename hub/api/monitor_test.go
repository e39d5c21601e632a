package api_test

import (
	"context"
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/hub/api"
	"skerry/hub/state"
	"skerry/internal/logtap"
	"skerry/syncproto"
)

// TestMonitor follows the logs of a hub and of a node with Nomad's client.
func TestMonitor(t *testing.T) {
	h, _, _ := mustServe(t)
	tap := logtap.New()
	log := tap.WrapLogger(slog.New(slog.DiscardHandler))
	a, err := api.New(api.Config{State: h.store, Cluster: h, Edges: h, Jobs: h, Garbage: h, Events: h, Secrets: secretsOf(h), Locks: locksOf(h), Logs: tap})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(a)
	t.Cleanup(srv.Close)
	c, err := nomad.NewClient(&nomad.Config{Address: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	hear := func(params map[string]string) (first string) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel() // ends the connection
		frames, errs := c.Agent().Monitor(nil, (&nomad.QueryOptions{Params: params}).WithContext(ctx))
		beat := time.NewTicker(5 * time.Millisecond)
		defer beat.Stop()
		late := time.After(30 * time.Second)
		for {
			select {
			case f := <-frames:
				if f != nil {
					return string(f.Data)
				}
			case err := <-errs:
				select { // the end of the stream may be seen before its last frame
				case f := <-frames:
					if f != nil {
						return string(f.Data)
					}
				default:
				}
				t.Fatal(err)
			case <-beat.C:
				log.Debug("quiet")
				log.Warn("here", "n", 1)
			case <-late:
				t.Fatal("nothing is heard")
			}
		}
	}
	if got := hear(map[string]string{"log_level": "warn"}); !strings.HasSuffix(got, "level=WARN msg=here n=1\n") {
		t.Errorf("heard %q", got)
	}
	if got := hear(map[string]string{"log_level": "debug", "log_json": "true", "server_id": "hub1"}); !strings.Contains(got, `"msg":"quiet"`) {
		t.Errorf("heard %q", got)
	}
	var asked syncproto.Request
	h.files = func(req syncproto.Request) (io.ReadCloser, error) {
		asked = req
		return io.NopCloser(strings.NewReader("level=INFO msg=far\n")), nil
	}
	if got := hear(map[string]string{"node_id": string(nodeID)}); got != "level=INFO msg=far\n" || asked.Kind != syncproto.RequestMonitor || asked.Level != "INFO" {
		t.Errorf("heard %q of %+v", got, asked)
	}
	mustApply(t, h, state.Hub{Hub: state.HubAddr{ID: "hub2", HTTP: "192.0.2.2:4646"}})
	for query, want := range map[string]struct {
		status int
		says   string
	}{
		"log_level=loud":                {400, "is not known"},
		"log_json=perhaps":              {400, "log_json"},
		"server_id=hub2":                {400, "ask it itself: its HTTP address is 192.0.2.2:4646"},
		"server_id=hub3":                {404, "no hub"},
		"node_id=nobody":                {404, "not found"},
		"node_id=nobody&server_id=hub1": {400, "both"},
	} {
		if status, said := mustAnswer(t, "GET", srv.URL+"/v1/agent/monitor?"+query, ""); status != want.status || !strings.Contains(said, want.says) {
			t.Errorf("%s: %d %s", query, status, said)
		}
	}
}
