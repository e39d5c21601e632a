package gateway_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

// serveSiteCodes keeps what is delivered, answers with what there is, and passes each request on.
func (w *testEdge) serveSiteCodes(ctx context.Context, held map[string]syncproto.DeliveredSiteCode, out chan<- string) {
	for {
		stream, err := w.conn.Accept(ctx)
		if err != nil {
			return
		}
		m, err := syncproto.NewReader(stream).Read()
		if err != nil {
			return
		}
		req := m.(syncproto.Request)
		said := []string{req.Kind}
		for _, d := range req.SiteCodes {
			if d.Revoked {
				said = append(said, "-"+d.ID)
				delete(held, d.ID)
				continue
			}
			said = append(said, fmt.Sprintf("%s:%s:%s:%s:%d:%d", d.ID, d.Name, strings.Join(d.Capabilities, "+"), d.Hash, d.Rounds, d.Expires))
			held[d.ID] = syncproto.DeliveredSiteCode{ID: d.ID, ModifyIndex: d.ModifyIndex, Capabilities: d.Capabilities}
		}
		var all []syncproto.DeliveredSiteCode
		for _, d := range held {
			all = append(all, d)
		}
		text, err := syncproto.EncodeSiteCodes(all)
		if err != nil {
			return
		}
		if err := syncproto.NewWriter(stream).Write(syncproto.Reply{}); err != nil {
			return
		}
		if _, err := stream.Tell(text); err != nil {
			return
		}
		if err := stream.CloseWrite(); err != nil {
			return
		}
		select {
		case out <- strings.Join(said, " "):
		case <-ctx.Done():
			return
		}
	}
}

// TestSiteCodesAreDelivered: an edge gets the codes that its site and its pool take, and no others. It gets changes of what
// they allow, and is told of a revocation, also in a later session. A code that the hubs do not know is left alone.
func TestSiteCodesAreDelivered(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{local: func(v *state.View, policies []string) (allowed []string) {
		for _, name := range policies {
			if p, ok := v.ACLPolicy(name); ok {
				allowed = append(allowed, p.Rules)
			}
		}
		return allowed
	}})
	end := time.Now().Add(time.Hour).Truncate(time.Second)
	store := func(id, site, pool string, ends time.Time) {
		t.Helper()
		h.mustApply(state.SiteCodeStore{Code: state.SiteCodeRecord{Hash: fleet.SiteCodeHash{Salt: []byte("salt"), Hash: []byte("hash"), Rounds: 7}, SiteCode: fleet.SiteCode{
			ID: id, Name: "Ann", Site: site, NodePool: pool, Policies: []string{"till"}, ExpirationTime: ends}}})
	}
	said := func(id, allowed string) string { return fmt.Sprintf("%s:Ann:%s:hash:7:%d", id, allowed, end.Unix()) }
	h.mustApply(state.ACLPolicyStore{Policy: fleet.ACLPolicy{Name: "till", Rules: "read"}})
	w := h.mustDial(t, node1)
	requests := make(chan string, 16)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	held := map[string]syncproto.DeliveredSiteCode{"gone": {ID: "gone", ModifyIndex: 1}}
	served := make(chan struct{})
	go func() { defer close(served); w.serveSiteCodes(ctx, held, requests) }()
	w.openSession(1, "agent-1")
	next := func(want ...string) {
		t.Helper()
		select {
		case got := <-requests:
			if want = append([]string{"sitecodes"}, want...); got != strings.Join(want, " ") {
				t.Fatalf("%s, want %s", got, strings.Join(want, " "))
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("no request: want %s", want)
		}
	}
	store("aaaa", "dc1", fleet.DefaultPool, end)
	next()
	next(said("aaaa", "read"))
	store("bbbb", "harbour", "*", end)
	store("cccc", "*", "ships", end)
	store("dddd", "*", "*", time.Now().Add(-time.Hour))
	store("eeee", "dc*", "*", end)
	next(said("eeee", "read"))
	h.mustApply(state.ACLPolicyStore{Policy: fleet.ACLPolicy{Name: "till", Rules: "write"}})
	next(said("aaaa", "write"), said("eeee", "write"))
	h.mustApply(state.SiteCodeRevoke{ID: "aaaa", Now: time.Now()})
	next("-aaaa")
	// The edge is away while a code is revoked, and while its policy goes.
	if err := w.endpoint.Close(); err != nil {
		t.Fatal(err)
	}
	<-served
	h.mustApply(state.SiteCodeRevoke{ID: "eeee", Now: time.Now()})
	store("ffff", "*", "*", end)
	h.mustApply(state.ACLDelete{Policies: []string{"till"}})
	again := h.mustDial(t, node1)
	go again.serveSiteCodes(ctx, held, requests)
	again.openSession(2, "agent-1")
	next()
	next("-eeee", said("ffff", ""))
}

// TestSiteCodesOfAnEdgeAreBound: of too many codes an edge gets those that were made first.
func TestSiteCodesOfAnEdgeAreBound(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{local: func(*state.View, []string) []string { return nil }})
	for i := range syncproto.MaxSiteCodes + 2 {
		h.mustApply(state.SiteCodeStore{Code: state.SiteCodeRecord{SiteCode: fleet.SiteCode{
			ID: fmt.Sprintf("z%03d", 999-i), Name: "Ann", Site: "*", NodePool: "*", ExpirationTime: time.Now().Add(time.Hour)}}})
	}
	w := h.mustDial(t, node1)
	requests := make(chan string, 16)
	go w.serveSiteCodes(t.Context(), map[string]syncproto.DeliveredSiteCode{}, requests)
	w.openSession(1, "agent-1")
	for _, want := range []int{0, syncproto.MaxSiteCodes} {
		select {
		case got := <-requests:
			ids := strings.Fields(got)[1:]
			if len(ids) != want || want > 0 && (!strings.HasPrefix(slices.Max(ids), "z999") || !strings.HasPrefix(slices.Min(ids), "z900")) {
				t.Fatalf("%d codes, not %d: %s", len(ids), want, got)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("no request")
		}
	}
}
