package pki_test

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/pki"
	"skerry/hub/state"
	"skerry/syncproto"
	"skerry/syncproto/enroll"
	"skerry/syncproto/identity"
	"skerry/syncproto/transport"
)

var start = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

const nodeID = "3f0c9f62-1111-4222-8333-444455556666"

// registry is the cluster's state as enrolment sees it.
type registry struct {
	cluster *state.Cluster
	known   map[string]bool
	revoked map[fleet.NodeID]*fleet.Revocation
	fail    error

	first    []byte // DER of the first CA
	later    state.CAs
	keys     map[uint64][]byte // of the CAs, by number, once there is more than one
	admitted map[string][]byte

	mu      sync.Mutex
	tokens  map[string]*state.JoinToken
	records []state.Certificate
}

func (r *registry) StateKey() []byte { return []byte("the state key") }
func (r *registry) Cluster() (state.Cluster, error) {
	if r.cluster == nil {
		return state.Cluster{}, fleet.Errorf(fleet.CodeUnavailable, "not part of a cluster yet")
	}
	return *r.cluster, nil
}
func (r *registry) Known(role, name string) bool { return r.known[role+":"+name] }
func (r *registry) Token(id string) (*state.JoinToken, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, ok := r.tokens[id]
	return t, ok
}

func (r *registry) Revocation(id fleet.NodeID) (*fleet.Revocation, bool) {
	why, ok := r.revoked[id]
	return why, ok
}

func (r *registry) CAs() state.CAs {
	first := &state.CA{Number: 1, Cert: r.first, SignsSince: 1, SettledAt: 1}
	return append(state.CAs{first}, r.later...)
}

func (r *registry) AdmittedKey(subject string) []byte { return r.admitted[subject] }

func (r *registry) Record(_ context.Context, c state.Certificate) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail == nil {
		r.records = append(r.records, c)
	}
	return r.fail
}

// recorded returns the certificates that were recorded.
func (r *registry) recorded() []state.Certificate {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.records)
}

func (r *registry) mustToken(ttl time.Duration, roles ...string) identity.Token {
	t, kept := pki.NewToken(*r.cluster, roles, ttl, start)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tokens[kept.ID] = &kept
	return t
}

func mustRegistry(tb testing.TB) *registry {
	tb.Helper()
	c, err := pki.NewCluster("global", start)
	if err != nil {
		tb.Fatal(err)
	}
	return &registry{cluster: &c, first: c.CACert, known: map[string]bool{}, tokens: map[string]*state.JoinToken{}}
}

func mustEnrolment(tb testing.TB, r *registry, now time.Time) *pki.Enrolment {
	tb.Helper()
	e, err := pki.NewEnrolment(pki.EnrolConfig{
		Registry: r,
		Hubs:     func() (quic, gossip []string) { return []string{"10.0.0.1:4647"}, []string{"10.0.0.1:4648"} },
		Now:      func() time.Time { return now },
	})
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

func mustIssue(tb testing.TB, c state.Cluster, role, name string) *identity.Identity {
	tb.Helper()
	ca, err := pki.NewAuthority(c)
	if err != nil {
		tb.Fatal(err)
	}
	id, _, err := ca.Issue(role, name, start)
	if err != nil {
		tb.Fatal(err)
	}
	return id
}

func mustRequest(tb testing.TB, role, name string) []byte {
	tb.Helper()
	key, err := identity.NewKey()
	if err != nil {
		tb.Fatal(err)
	}
	csr, err := identity.NewRequest(key, role, name)
	if err != nil {
		tb.Fatal(err)
	}
	return csr
}

func TestNewClusterRefusesAClockOf1970(t *testing.T) {
	_, err := pki.NewCluster("global", time.Unix(100, 0))
	if e := fleet.AsError(err); e == nil || e.Code != fleet.CodeInvalid || e.Hint == "" {
		t.Fatalf("got %+v", e)
	}
}

func TestSign(t *testing.T) {
	r := mustRegistry(t)
	hub := mustIssue(t, *r.cluster, fleet.RoleHub, "one")
	if got := hub.Cert.NotAfter.Sub(start); got != pki.CertValidity {
		t.Errorf("valid for %s", got)
	}
	if want := "one.hub.skerry"; !slices.Equal(hub.Cert.DNSNames, []string{want}) {
		t.Errorf("names %v, want %s", hub.Cert.DNSNames, want)
	}
	late, _, err := mustCA(t, *r.cluster).Issue(fleet.RoleEdge, nodeID, start.Add(pki.CAValidity-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if late.Cert.NotAfter.After(late.CA.NotAfter) {
		t.Error("a certificate outlives its CA")
	}
}

func mustCA(tb testing.TB, c state.Cluster) *pki.Authority {
	tb.Helper()
	ca, err := pki.NewAuthority(c)
	if err != nil {
		tb.Fatal(err)
	}
	return ca
}

func TestSignRefuses(t *testing.T) {
	ca := mustCA(t, *mustRegistry(t).cluster)
	csr := mustRequest(t, fleet.RoleEdge, nodeID)
	broken := slices.Clone(csr)
	broken[len(broken)-1] ^= 1
	for name, try := range map[string]struct {
		csr        []byte
		role, name string
	}{
		"another role":    {csr, fleet.RoleHub, "one"},
		"another name":    {csr, fleet.RoleEdge, strings.Replace(nodeID, "3f", "4f", 1)},
		"a role unknown":  {csr, "operator", "x"},
		"a bad signature": {broken, fleet.RoleEdge, nodeID},
		"garbage":         {[]byte("x"), fleet.RoleEdge, nodeID},
		"far too long":    {make([]byte, 1<<20), fleet.RoleEdge, nodeID},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := ca.Sign(pki.Request{Role: try.role, Name: try.name, CSR: try.csr}, start); fleet.CodeOf(err) != fleet.CodeInvalid {
				t.Fatalf("got %v", err)
			}
		})
	}
}

func FuzzSign(f *testing.F) {
	c, err := pki.NewCluster("global", start)
	if err != nil {
		f.Fatal(err)
	}
	ca := mustCA(f, c)
	f.Add(mustRequest(f, fleet.RoleEdge, nodeID))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, csr []byte) {
		cert, _, err := ca.Sign(pki.Request{Role: fleet.RoleEdge, Name: nodeID, CSR: csr}, start)
		if err != nil {
			return
		}
		parsed, err := x509.ParseCertificate(cert)
		if err != nil {
			t.Fatal(err)
		}
		if role, name, ok := identity.Subject(parsed); !ok || role != fleet.RoleEdge || name != nodeID {
			t.Fatalf("signed for %s", parsed.Subject)
		}
	})
}

func TestSaveAndLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	if _, ok, err := pki.Load(dir); ok || err != nil {
		t.Fatalf("nothing there: %t, %v", ok, err)
	}
	id := mustIssue(t, *mustRegistry(t).cluster, fleet.RoleHub, "one")
	for range 2 { // the second time replaces the first
		if err := pki.Save(dir, id); err != nil {
			t.Fatal(err)
		}
	}
	got, ok, err := pki.Load(dir)
	if err != nil || !ok || got.Name != "one" || !got.Key.Equal(id.Key) {
		t.Fatalf("loaded %+v, %t, %v", got, ok, err)
	}
	if fi, err := os.Stat(filepath.Join(dir, "hub-key.pem")); err != nil || fi.Mode().Perm() != 0o600 {
		t.Fatalf("the key's mode: %v, %v", fi.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*.pem.*")); len(left) > 0 {
		t.Fatalf("left behind: %v", left)
	}
	if err := os.WriteFile(filepath.Join(dir, "hub.pem"), []byte("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := pki.Load(dir); err == nil {
		t.Fatal("a damaged certificate was taken")
	}
}

func TestEnrollAnswers(t *testing.T) {
	r := mustRegistry(t)
	both := r.mustToken(0, fleet.RoleHub, fleet.RoleEdge)
	short := r.mustToken(time.Hour, fleet.RoleEdge)
	r.known["edge:aaaaaaaa-1111-4222-8333-444455556666"] = true
	for name, try := range map[string]struct {
		token  identity.Token
		role   string
		id     string
		now    time.Time
		change func(*syncproto.Enroll)
		want   fleet.Code
	}{
		"an edge":               {token: both, role: fleet.RoleEdge, id: nodeID},
		"a hub":                 {token: both, role: fleet.RoleHub, id: "two"},
		"before it expires":     {token: short, role: fleet.RoleEdge, id: nodeID, now: start.Add(59 * time.Minute)},
		"expired":               {token: short, role: fleet.RoleEdge, id: nodeID, now: start.Add(time.Hour), want: fleet.CodeTokenExpiry},
		"not for that role":     {token: short, role: fleet.RoleHub, id: "two", want: fleet.CodeForbidden},
		"unknown":               {token: identity.NewToken(r.cluster.CACert), role: fleet.RoleEdge, id: nodeID, want: fleet.CodeTokenBad},
		"another token's proof": {token: both, role: fleet.RoleEdge, id: nodeID, change: func(m *syncproto.Enroll) { m.Secret = short.Secret }, want: fleet.CodeTokenBad},
		"expired, wrong secret": {token: short, role: fleet.RoleEdge, id: nodeID, now: start.Add(time.Hour), change: func(m *syncproto.Enroll) { m.Secret = "x" }, want: fleet.CodeTokenBad},
		"the name is taken":     {token: both, role: fleet.RoleEdge, id: "aaaaaaaa-1111-4222-8333-444455556666", want: fleet.CodeConflict},
		"a request of another":  {token: both, role: fleet.RoleEdge, id: nodeID, change: func(m *syncproto.Enroll) { m.ID = "bbbbbbbb-1111-4222-8333-444455556666" }, want: fleet.CodeInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			now := try.now
			if now.IsZero() {
				now = start
			}
			req := syncproto.Enroll{
				TokenID: try.token.ID, Secret: try.token.Secret, Role: try.role, ID: try.id, CSR: mustRequest(t, try.role, try.id),
			}
			if try.change != nil {
				try.change(&req)
			}
			before := len(r.records)
			answer, err := mustEnrolment(t, r, now).Enroll(t.Context(), pki.Applicant{Addr: &net.UDPAddr{}}, req)
			if fleet.CodeOf(err) != try.want {
				t.Fatalf("got %v, want code %q", err, try.want)
			}
			if err != nil {
				if len(r.records) != before || answer.Cert != nil {
					t.Fatal("a certificate was made nevertheless")
				}
				return
			}
			if len(r.records) != before+1 {
				t.Fatal("the certificate is not recorded")
			}
			if (answer.GossipKey != nil) != (try.role == fleet.RoleHub) || (answer.StateKey != nil) != (try.role == fleet.RoleHub) {
				t.Fatalf("keys given to a %s: %t, %t", try.role, answer.GossipKey != nil, answer.StateKey != nil)
			}
		})
	}
}

// A hub that lags refuses nobody for what it does not know yet. Without a leader it says that it cannot tell.
func TestALaggingHubRefusesNobody(t *testing.T) {
	const taken, free = "aaaaaaaa-1111-4222-8333-444455556666", "bbbbbbbb-1111-4222-8333-444455556666"
	for name, c := range map[string]struct {
		id      string
		arrives func(r *registry, token *state.JoinToken) // what the leader has, and this hub has not
		fails   bool                                      // no leader answers
		want    fleet.Code
	}{
		"a new token":     {id: free, arrives: func(r *registry, token *state.JoinToken) { r.tokens[token.ID] = token }},
		"no such token":   {id: free, arrives: func(*registry, *state.JoinToken) {}, want: fleet.CodeTokenBad},
		"a name is free":  {id: taken, arrives: func(r *registry, token *state.JoinToken) { r.tokens[token.ID] = token; r.known = nil }},
		"a name is taken": {id: taken, arrives: func(r *registry, token *state.JoinToken) { r.tokens[token.ID] = token }, want: fleet.CodeConflict},
		"no leader":       {id: free, fails: true, want: fleet.CodeUnavailable},
		"revoked meanwhile": {id: free, arrives: func(r *registry, token *state.JoinToken) {
			r.tokens[token.ID] = token
			r.revoked = map[fleet.NodeID]*fleet.Revocation{free: {NodeID: free}}
		}, want: fleet.CodeRevoked},
	} {
		t.Run(name, func(t *testing.T) {
			r := mustRegistry(t)
			r.known["edge:"+taken] = true
			token, kept := pki.NewToken(*r.cluster, []string{fleet.RoleEdge}, 0, start)
			asked := 0
			e, err := pki.NewEnrolment(pki.EnrolConfig{
				Registry: r, Hubs: func() (quic, gossip []string) { return nil, nil }, Now: func() time.Time { return start },
				CatchUp: func(context.Context) error {
					asked++
					if c.fails {
						return fleet.Errorf(fleet.CodeUnavailable, "no leader")
					}
					c.arrives(r, &kept)
					return nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			_, err = e.Enroll(t.Context(), pki.Applicant{Addr: &net.UDPAddr{}}, syncproto.Enroll{
				TokenID: token.ID, Secret: token.Secret, Role: fleet.RoleEdge, ID: c.id, CSR: mustRequest(t, fleet.RoleEdge, c.id),
			})
			if fleet.CodeOf(err) != c.want || asked != 1 {
				t.Errorf("got %v, want code %q; the leader was asked %d times, want once", err, c.want, asked)
			}
		})
	}
}

func TestEnrollGivesNothingThatIsNotRecorded(t *testing.T) {
	r := mustRegistry(t)
	token := r.mustToken(0, fleet.RoleEdge)
	r.fail = errors.New("no leader")
	answer, err := mustEnrolment(t, r, start).Enroll(t.Context(), pki.Applicant{Addr: &net.UDPAddr{}}, syncproto.Enroll{
		TokenID: token.ID, Secret: token.Secret, Role: fleet.RoleEdge, ID: nodeID, CSR: mustRequest(t, fleet.RoleEdge, nodeID),
	})
	if err == nil || answer.Cert != nil {
		t.Fatalf("got %v, %v", answer, err)
	}
}

// server is a hub's QUIC port.
type server struct {
	addr net.Addr
	id   *identity.Identity
}

func mustEndpoint(tb testing.TB, cfg transport.Config) *transport.Endpoint {
	tb.Helper()
	var err error
	if cfg.Conn, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
		tb.Fatal(err)
	}
	e, err := transport.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := e.Close(); err != nil {
			tb.Error(err)
		}
	})
	return e
}

func mustServe(tb testing.TB, r *registry, e *pki.Enrolment) server {
	tb.Helper()
	return mustServeAs(tb, mustIssue(tb, *r.cluster, fleet.RoleHub, "one"), e, start)
}

func mustServeAs(tb testing.TB, id *identity.Identity, e *pki.Enrolment, now time.Time) server {
	tb.Helper()
	ep := mustEndpoint(tb, transport.Config{TLS: pki.ServerTLS(func() *identity.Identity { return id }, func() time.Time { return now })})
	ctx, cancel := context.WithCancel(tb.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ep.Accept(ctx)
			if err != nil {
				return
			}
			if conn.ALPN() == syncproto.ALPNEnroll {
				wg.Go(func() {
					if err := e.Serve(ctx, conn); err != nil && ctx.Err() == nil {
						tb.Error(err)
					}
				})
			}
		}
	})
	tb.Cleanup(func() { cancel(); wg.Wait() })
	return server{addr: ep.Addr(), id: id}
}

func TestEnrollOverTheWire(t *testing.T) {
	r := mustRegistry(t)
	token := r.mustToken(0, fleet.RoleEdge)
	hub := mustServe(t, r, mustEnrolment(t, r, start))
	dialer := mustEndpoint(t, transport.Config{})
	applicant := func(token identity.Token, id string) enroll.Applicant {
		key, err := identity.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		return enroll.Applicant{Token: token, Role: fleet.RoleEdge, ID: id, Key: key,
			Now: func() time.Time { return time.Unix(7, 0) }} // a board without a clock battery
	}

	id, answer, err := enroll.Enroll(t.Context(), dialer, hub.addr, applicant(token, nodeID))
	if err != nil {
		t.Fatal(err)
	}
	if id.Name != nodeID || answer.Cluster != r.cluster.ID {
		t.Fatalf("enrolled as %s in %s", id.Name, answer.Cluster)
	}
	t.Run("a session in 1970", func(t *testing.T) {
		conn, err := dialer.Dial(t.Context(), transport.DialConfig{
			Addr: hub.addr, ALPN: syncproto.ALPNEdge, TLS: id.ClientTLS(func() time.Time { return time.Unix(8, 0) }),
		})
		if err != nil {
			t.Fatal(err)
		}
		if role, name := conn.Peer(); role != fleet.RoleHub || name != "one" {
			t.Fatalf("the peer is %s:%s", role, name)
		}
		if err := conn.CloseWith(nil); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("a token of another cluster", func(t *testing.T) {
		before := len(r.recorded())
		_, _, err := enroll.Enroll(t.Context(), dialer, hub.addr, applicant(mustRegistry(t).mustToken(0, fleet.RoleEdge), nodeID))
		if e := fleet.AsError(err); e == nil || e.Code != fleet.CodeCAMismatch || !strings.Contains(e.Message, "its CA is not the one that the join token names") || len(r.recorded()) != before {
			t.Fatalf("got %+v", e)
		}
	})
	short := r.mustToken(time.Hour, fleet.RoleEdge)
	for name, try := range map[string]struct {
		now  time.Time // of the hub
		code fleet.Code
		says string
	}{
		"a token that expired":         {start.Add(time.Hour), fleet.CodeTokenExpiry, "expired at 2026-09-01T13:00:00Z"},
		"a hub whose clock fell back":  {time.Unix(90, 0), fleet.CodeUnavailable, "it shows 1970-01-01T00:01:30Z"},
		"a hub a day before its CA is": {start.Add(-24 * time.Hour), fleet.CodeUnavailable, "clock"},
	} {
		t.Run(name, func(t *testing.T) {
			hub := mustServe(t, r, mustEnrolment(t, r, try.now))
			_, _, err := enroll.Enroll(t.Context(), dialer, hub.addr, applicant(short, "cccccccc-1111-4222-8333-444455556666"))
			if e := fleet.AsError(err); e == nil || e.Code != try.code || e.Hint == "" || !strings.Contains(e.Message, try.says) {
				t.Fatalf("got %+v", e)
			}
		})
	}
	t.Run("a token that is not known", func(t *testing.T) {
		_, _, err := enroll.Enroll(t.Context(), dialer, hub.addr, applicant(identity.NewToken(r.cluster.CACert), nodeID))
		if e := fleet.AsError(err); e == nil || e.Code != fleet.CodeTokenBad || e.Hint == "" {
			t.Fatalf("got %+v", e)
		}
	})
}

func TestServerTLSChecksRoles(t *testing.T) {
	r := mustRegistry(t)
	hub := mustServe(t, r, mustEnrolment(t, r, start))
	edge := mustIssue(t, *r.cluster, fleet.RoleEdge, nodeID)
	foreign := mustIssue(t, *mustRegistry(t).cluster, fleet.RoleHub, "two")
	now := func() time.Time { return start }
	for name, try := range map[string]struct {
		id   *identity.Identity
		alpn string
		ok   bool
	}{
		"an edge's session":    {edge, syncproto.ALPNEdge, true},
		"an edge as a hub":     {edge, syncproto.ALPNHub, false},
		"an edge in raft":      {edge, syncproto.ALPNRaft, false},
		"a hub as a hub":       {hub.id, syncproto.ALPNHub, true},
		"a hub as an edge":     {hub.id, syncproto.ALPNEdge, false},
		"another cluster":      {foreign, syncproto.ALPNHub, false},
		"a protocol not known": {hub.id, "skerry-hub/9", false},
		"a hub that renews":    {hub.id, syncproto.ALPNEnroll, false},
	} {
		t.Run(name, func(t *testing.T) {
			tls := try.id.ClientTLS(now)
			if try.id == foreign {
				tls.VerifyConnection = nil // it would refuse the hub first
			}
			conn, err := mustEndpoint(t, transport.Config{}).Dial(t.Context(), transport.DialConfig{Addr: hub.addr, ALPN: try.alpn, TLS: tls})
			if err == nil { // the server's verdict may come after the client's handshake
				_, err = conn.Accept(deadline(t, try.ok))
				if errors.Is(err, context.DeadlineExceeded) {
					err = nil
				}
			}
			if (err == nil) != try.ok {
				t.Fatalf("got %v, want ok=%t", err, try.ok)
			}
		})
	}
}

// deadline is short where nothing is expected to come.
func deadline(t *testing.T, short bool) context.Context {
	d := 10 * time.Second
	if short {
		d = 50 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// A token with a list of keys gives certificates for these alone: the request's signature proves that its sender has the
// key. An edge that was away for too long needs such a key as well.
func TestTokensOfListedKeys(t *testing.T) {
	r := mustRegistry(t)
	token := r.mustToken(0, fleet.RoleEdge)
	listed, other := mustIssue(t, *r.cluster, fleet.RoleEdge, nodeID), mustIssue(t, *r.cluster, fleet.RoleEdge, nodeID)
	sum := sha256.Sum256(listed.Cert.RawSubjectPublicKeyInfo)
	r.tokens[token.ID].AllowKeys = sum[:]
	for name, try := range map[string]struct {
		id   *identity.Identity
		held *x509.Certificate
		want fleet.Code
	}{
		"of the list":                   {id: listed},
		"another":                       {id: other, want: fleet.CodeForbidden},
		"of the list, away for long":    {id: listed, held: listed.Cert},
		"another that was away as long": {id: other, held: other.Cert, want: fleet.CodeForbidden},
	} {
		csr, err := identity.NewRequest(try.id.Key, fleet.RoleEdge, nodeID)
		if err != nil {
			t.Fatal(err)
		}
		_, err = mustEnrolment(t, r, start.Add(800*24*time.Hour)).Enroll(t.Context(), pki.Applicant{Addr: &net.UDPAddr{}, Cert: try.held}, syncproto.Enroll{
			TokenID: token.ID, Secret: token.Secret, Role: fleet.RoleEdge, ID: nodeID, CSR: csr,
		})
		if fleet.CodeOf(err) != try.want {
			t.Errorf("%s: got %v, want %q", name, err, try.want)
		}
	}
}
