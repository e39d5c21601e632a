package gateway_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/gateway"
	"skerry/hub/state"
	"skerry/hub/state/statetest"
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

// codeFleet is a gateway without sessions, and the policies that it was asked about.
type codeFleet struct {
	*statetest.Log
	tb      testing.TB
	gateway *gateway.Gateway
	now     time.Time
	asked   []string
}

func newCodeFleet(tb testing.TB) *codeFleet {
	tb.Helper()
	f := &codeFleet{Log: statetest.NewLog(), tb: tb, now: time.Unix(1_800_000_000, 0)}
	var err error
	f.gateway, err = gateway.New(gateway.Config{
		Hub: "hub-1", State: f.Store, Apply: f, Beats: fixedTTLTracker{time.Minute}, Hubs: func() []string { return nil }, Term: func() uint64 { return 1 },
		Led: func() bool { return true }, Elsewhere: otherHubs{}, Renew: func(context.Context) error { return nil }, Now: func() time.Time { return f.now },
		LocalCapabilities: func(_ *state.View, policies []string) []string {
			f.asked = append(f.asked, strings.Join(policies, "+"))
			return policies
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func (f *codeFleet) storeCode(id, site, pool, policy string, valid time.Duration) {
	f.tb.Helper()
	f.MustApply(f.tb, state.SiteCodeStore{Code: state.SiteCodeRecord{SiteCode: fleet.SiteCode{
		ID: id, Name: "Ann", Site: site, NodePool: pool, Policies: []string{policy}, ExpirationTime: f.now.Add(valid)}}})
}

// mustAgree checks the codes of a place against all codes of the state.
func (f *codeFleet) mustAgree(site, pool string) {
	f.tb.Helper()
	var rows []*state.SiteCodeRecord
	for row := range f.View().SiteCodes() {
		if row.IsValid(f.now) && row.IsFor(site, pool) {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b *state.SiteCodeRecord) int { return cmp.Compare(a.CreateIndex, b.CreateIndex) })
	var want []string
	for _, row := range rows[:min(len(rows), syncproto.MaxSiteCodes)] {
		want = append(want, row.ID)
	}
	slices.Sort(want)
	if got, count := f.gateway.SiteCodesFor(site, pool); !slices.Equal(got, want) || count != len(rows) {
		f.tb.Fatalf("site %s, pool %s: %d codes of %d, want %d of %d: %v, %v", site, pool, len(got), count, len(want), len(rows), got, want)
	}
}

// TestSiteCodesOfAPlace: the codes that are kept for a site and a pool are those of the state, after each change and after the
// end of each code, also where an edge takes only some of them.
func TestSiteCodesOfAPlace(t *testing.T) {
	t.Parallel()
	f := newCodeFleet(t)
	sites, pools := []string{"s1", "s2", "*", "s*", "s1*", "*2"}, []string{"till", "door", "*", "t*"}
	check := func() {
		for _, site := range []string{"s1", "s2", "s12", "harbour", ""} {
			for _, pool := range []string{"till", "door", "other"} {
				f.mustAgree(site, pool)
			}
		}
	}
	check()
	for i := range 600 {
		f.storeCode(fmt.Sprintf("c%03d", 999-i), sites[i%len(sites)], pools[i/len(sites)%len(pools)], "look", time.Duration(i%7+1)*time.Hour)
		if i%40 == 0 {
			check()
		}
	}
	for i := range 20 {
		f.MustApply(t, state.SiteCodeRevoke{ID: fmt.Sprintf("c%03d", 999-7*i), Now: f.now})
	}
	check()
	for range 8 {
		f.now = f.now.Add(time.Hour)
		check()
	}
}

// TestSiteCodesAreReadOnce: a change of a code or a policy is computed once for all edges: each set of policies is looked at
// once, whatever the number of edges and codes. The places that are kept are bounded.
func TestSiteCodesAreReadOnce(t *testing.T) {
	t.Parallel()
	f := newCodeFleet(t)
	for i := range 300 {
		f.storeCode(fmt.Sprintf("c%03d", i), "*", fmt.Sprintf("pool-%d*", i%3), []string{"look", "work"}[i%2], time.Hour)
	}
	for _, change := range []struct {
		name  string
		apply func()
	}{
		{"the first session", func() {}},
		{"another code", func() { f.storeCode("next", "s1", "*", "look", time.Hour) }},
		{"another policy", func() {
			f.MustApply(t, state.ACLPolicyStore{Policy: fleet.ACLPolicy{Name: "look", Rules: `local { policy = "read" }`}})
		}},
	} {
		change.apply()
		f.asked = nil
		for i := range 2 * gateway.MaxCodePlaces {
			f.gateway.SiteCodesFor(fmt.Sprintf("s%d", i/2), "pool-1")
		}
		if slices.Sort(f.asked); !slices.Equal(f.asked, []string{"look", "work"}) {
			t.Errorf("%s: asked %d times what policies allow", change.name, len(f.asked))
		}
		if n := f.gateway.CodePlaces(); n != gateway.MaxCodePlaces {
			t.Errorf("%s: the codes of %d places are kept", change.name, n)
		}
	}
	f.gateway.SiteCodesFor("one more", "pool-1")
	if n := f.gateway.CodePlaces(); n != 1 {
		t.Errorf("the codes of %d places are kept", n)
	}
}

// One change of a code costs a hub at most a second, with 10,000 edges at as many sites and 20,000 codes.
func BenchmarkSiteCodeChange(b *testing.B) {
	const edges, codes = 10_000, state.MaxSiteCodes
	f := newCodeFleet(b)
	for i := range codes {
		site := fmt.Sprintf("shop-%d", i%edges)
		if i%100 == 0 {
			site = "*"
		}
		f.storeCode(fmt.Sprintf("c%05d", i), site, "*", "look", time.Hour)
	}
	sites := make([]string, edges)
	for i := range sites {
		sites[i] = fmt.Sprintf("shop-%d", i)
	}
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		f.storeCode(fmt.Sprintf("next-%d", i), "shop-1", "*", "look", time.Hour)
		b.StartTimer()
		for _, site := range sites {
			f.gateway.SiteCodesFor(site, "default")
		}
	}
}
