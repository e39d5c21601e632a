package access_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/hub/access"
	"skerry/hub/state"
)

// cluster is a state with the resolver that reads it.
type cluster struct {
	tb    testing.TB
	store *state.Store
	index fleet.Index
	now   time.Time
	*access.Resolver
}

func newCluster(tb testing.TB) *cluster {
	c := &cluster{tb: tb, store: state.New(), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	c.Resolver = access.New(access.Config{State: c.store, Now: func() time.Time { return c.now }})
	return c
}

func (c *cluster) mustApply(cmd state.Command) {
	c.tb.Helper()
	c.index++
	if res := c.store.Apply(c.index, cmd); res.Err != nil {
		c.tb.Fatalf("apply %T: %v", cmd, res.Err)
	}
}

func (c *cluster) storePolicy(name, rules string) {
	c.tb.Helper()
	c.mustApply(state.ACLPolicyStore{Policy: fleet.ACLPolicy{Name: name, Rules: rules}})
}

func token(n int, kind string, policies ...string) state.ACLTokenRecord {
	return state.ACLTokenRecord{Hash: access.HashSecret(secret(n)),
		ACLToken: fleet.ACLToken{AccessorID: fmt.Sprintf("accessor-%d", n), Name: "test", Type: kind, Policies: policies}}
}

// nextToken returns a number that no token of the test has.
func (c *cluster) nextToken() int { return 1<<20 + int(c.index) }

func secret(n int) string { return fmt.Sprintf("secret-%d", n) }

// mustAllow asks for a capability in the namespace default.
func (c *cluster) mustAllow(secret string, capability acl.Capability, want bool) *access.Actor {
	c.tb.Helper()
	actor, err := c.Resolve(context.Background(), secret)
	if err != nil {
		c.tb.Fatalf("resolve %q: %v", secret, err)
	}
	if got := actor.ACL.Allows(acl.Requirement{Kind: acl.KindNamespace, Name: "default", Capability: capability}); got != want {
		c.tb.Errorf("%q: %s is allowed: %v", secret, capability, got)
	}
	return actor
}

func (c *cluster) mustRefuse(secret, message string) {
	c.tb.Helper()
	if _, err := c.Resolve(context.Background(), secret); fleet.CodeOf(err) != fleet.CodeForbidden || !strings.Contains(err.Error(), message) {
		c.tb.Errorf("resolve %q: %v, not %q", secret, err, message)
	}
}

func TestResolve(t *testing.T) {
	c := newCluster(t)
	if actor := c.mustAllow("anything", acl.SubmitJob, true); actor.Accessor != "" {
		t.Errorf("without access control: %+v", actor)
	}
	c.mustApply(state.ACLBootstrap{Token: token(0, fleet.ACLTokenManagement)})
	c.mustAllow(secret(0), acl.SubmitJob, true)
	c.mustRefuse("anything", "ACL token not found")
	c.mustAllow("", acl.ReadJob, false)

	c.storePolicy("anonymous", `namespace "default" { policy = "read" }`)
	c.mustAllow("", acl.ReadJob, true)
	c.mustApply(state.ACLDelete{Policies: []string{"anonymous"}})
	c.mustAllow("", acl.ReadJob, false)

	c.storePolicy("read", `namespace "default" { policy = "read" }`)
	c.storePolicy("write", `namespace "default" { policy = "write" }`)
	c.mustApply(state.ACLRoleStore{Role: fleet.ACLRole{ID: "r1", Name: "writers", Policies: []fleet.ACLRolePolicy{{Name: "write"}}}})
	client := token(1, fleet.ACLTokenClient, "read", "gone")
	c.mustApply(state.ACLTokenStore{Token: client})
	c.mustAllow(secret(1), acl.ReadJob, true)
	c.mustAllow(secret(1), acl.SubmitJob, false)

	changed := client
	changed.Hash, changed.Roles = nil, []fleet.ACLTokenRole{{ID: "r1"}}
	c.mustApply(state.ACLTokenStore{Token: changed})
	actor := c.mustAllow(secret(1), acl.SubmitJob, true)
	if !slices.Equal(actor.Policies, []string{"gone", "read", "write"}) || !slices.Equal(actor.Roles, []string{"writers"}) || actor.Token.Roles[0].Name != "writers" || actor.Token.SecretID != "" {
		t.Errorf("the actor of a role: %+v", actor)
	}
	c.mustApply(state.ACLRoleStore{Role: fleet.ACLRole{ID: "r1", Name: "readers", Policies: []fleet.ACLRolePolicy{{Name: "read"}}}})
	if actor := c.mustAllow(secret(1), acl.SubmitJob, false); !slices.Equal(actor.Roles, []string{"readers"}) {
		t.Errorf("the actor of a renamed role: %+v", actor)
	}
	c.storePolicy("read", `namespace "default" { policy = "write" }`)
	c.mustAllow(secret(1), acl.SubmitJob, true)
	c.storePolicy("write", "of a newer release")
	c.mustAllow(secret(1), acl.SubmitJob, true) // its role has it no longer
	c.mustApply(state.ACLRoleStore{Role: fleet.ACLRole{ID: "r1", Name: "writers", Policies: []fleet.ACLRolePolicy{{Name: "write"}}}})
	c.mustAllow(secret(1), acl.ReadJob, false) // a policy that cannot be read may deny it
	if actor, ok := c.ActorOf(c.store.View(), client.AccessorID); !ok || actor.ACL.AllowsAny(acl.KindNamespace, acl.ReadJob) {
		t.Errorf("the actor by its accessor: %+v, %v", actor, ok)
	}
	c.mustApply(state.ACLDelete{Tokens: []string{client.AccessorID}})
	c.mustRefuse(secret(1), "ACL token not found")
}

// TestSecretsAreFoundByTheirHash shows that the time of an answer tells nothing of a secret. A secret is looked up by its
// SHA-256 alone: what is like a secret, or begins as it does, has a hash that has nothing in common with the stored one.
func TestSecretsAreFoundByTheirHash(t *testing.T) {
	c := newCluster(t)
	c.mustApply(state.ACLBootstrap{Token: token(0, fleet.ACLTokenManagement)})
	known := secret(0)
	stored := access.HashSecret(known)
	if row, ok := c.store.View().ACLTokenByHash(stored); !ok || row.SecretID != "" {
		t.Fatalf("the token by the hash of its secret: %+v", row)
	}
	c.mustAllow(known, acl.SubmitJob, true) // from now on it is in the cache
	similar := []string{known[:1], known[:len(known)-1], known + "0", strings.ToUpper(known), known + " ", string(stored), fmt.Sprintf("%x", stored)}
	for i := 1; i < 1000; i++ {
		similar = append(similar, secret(i))
	}
	for _, s := range similar {
		c.mustRefuse(s, "ACL token not found")
		if bytes.HasPrefix(access.HashSecret(s), stored[:3]) {
			t.Errorf("the hash of %q begins as that of %q does", s, known)
		}
	}
	const raw = "a secret of exactly thirty-two b" // in the place of its hash
	row := token(2, fleet.ACLTokenManagement)
	row.Hash = []byte(raw)
	c.mustApply(state.ACLTokenStore{Token: row})
	c.mustRefuse(raw, "ACL token not found")
}

// A token ends by the newest time that was seen: a clock that goes back does not revive it.
func TestExpiry(t *testing.T) {
	c := newCluster(t)
	c.mustApply(state.ACLBootstrap{Token: token(0, fleet.ACLTokenManagement)})
	short := token(1, fleet.ACLTokenManagement)
	end := c.now.Add(time.Minute)
	short.ExpirationTime = &end
	c.mustApply(state.ACLTokenStore{Token: short})
	c.mustAllow(secret(1), acl.SubmitJob, true)
	c.now = end
	c.mustRefuse(secret(1), "ACL token expired")
	c.now = end.Add(-time.Hour)
	c.mustRefuse(secret(1), "ACL token expired")
}

// A token that was made on another hub is known after catching up with the leader.
func TestTokenOfAnotherHub(t *testing.T) {
	c := newCluster(t)
	c.mustApply(state.ACLBootstrap{Token: token(0, fleet.ACLTokenManagement)})
	behind := access.New(access.Config{State: c.store, CatchUp: func(context.Context) error {
		c.mustApply(state.ACLTokenStore{Token: token(1, fleet.ACLTokenManagement)})
		return nil
	}})
	if actor, err := behind.Resolve(context.Background(), secret(1)); err != nil || actor.Accessor != "accessor-1" {
		t.Errorf("a token of another hub: %+v, %v", actor, err)
	}
}

func TestEnabledByConfiguration(t *testing.T) {
	r := access.New(access.Config{State: state.New(), Enabled: true})
	actor, err := r.Resolve(context.Background(), "")
	if err != nil || actor.ACL.AllowsAny(acl.KindNamespace, acl.ReadJob) {
		t.Errorf("before the bootstrap: %+v, %v", actor, err)
	}
}

// processorTime returns the processor time that the test has used, with that of the garbage collection: unlike the time on the
// clock, other programs on the machine hardly change it.
func processorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// Resolution costs at most 5 µs a request with 10,000 policies and 100,000 tokens of two policies each, all in use. The first
// request of a token after another token or a policy has changed costs more, and the first one since the hub's start reads
// policies, too.
func BenchmarkResolve(b *testing.B) {
	const policies, tokens = 10_000, 100_000
	c := newCluster(b)
	c.mustApply(state.ACLBootstrap{Token: token(0, fleet.ACLTokenManagement)})
	rules := func(i int) string {
		return fmt.Sprintf("namespace \"team-%d-*\" { policy = \"write\" }\nnamespace \"default\" { policy = \"read\" }", i)
	}
	for i := range policies {
		c.storePolicy(fmt.Sprintf("policy-%d", i), rules(i))
	}
	end, secrets := c.now.Add(time.Hour), make([]string, tokens)
	for i := range tokens {
		row := token(i+1, fleet.ACLTokenClient, fmt.Sprintf("policy-%d", i%policies), fmt.Sprintf("policy-%d", (i+1)%policies))
		row.ExpirationTime = &end
		c.mustApply(state.ACLTokenStore{Token: row})
		secrets[i] = secret(i + 1)
	}
	needs := acl.Requirement{Kind: acl.KindNamespace, Name: "default", Capability: acl.ReadJob}
	for _, test := range []struct {
		name   string
		before func() // each time when all tokens have been used
	}{
		{"unchanged", func() {}},
		{"token changed", func() { c.mustApply(state.ACLTokenStore{Token: token(c.nextToken(), fleet.ACLTokenManagement)}) }},
		{"policy changed", func() { c.storePolicy("policy-0", rules(0)) }},
		{"hub started", func() { c.Resolver = access.New(access.Config{State: c.store, Now: func() time.Time { return c.now }}) }},
	} {
		b.Run(test.name, func(b *testing.B) {
			for _, s := range secrets {
				c.mustAllow(s, acl.ReadJob, true)
			}
			runtime.GC() // of what was before
			began := processorTime(b)
			defer func() { b.ReportMetric(float64(processorTime(b)-began)/float64(b.N), "cpu-ns/op") }()
			for i := 0; b.Loop(); i++ {
				if i%tokens == 0 {
					b.StopTimer()
					test.before()
					b.StartTimer()
				}
				actor, err := c.Resolve(context.Background(), secrets[i%tokens])
				if err != nil || !actor.ACL.Allows(needs) {
					b.Fatal("refused")
				}
			}
		})
	}
}

// TestLocalCapabilities: several policies are united, a denial takes away everything, and so does a policy that cannot be
// read. A policy that is gone allows nothing.
func TestLocalCapabilities(t *testing.T) {
	c := newCluster(t)
	c.storePolicy("look", `local { policy = "read" }`)
	c.storePolicy("work", `local { policy = "write" }`)
	c.storePolicy("shell", `local { capabilities = ["exec"] }`)
	c.storePolicy("deny", `local { policy = "deny" }`)
	c.storePolicy("other", `namespace "*" { policy = "write" }`)
	c.storePolicy("newer", `fly { policy = "read" }`)
	for policies, want := range map[string]string{
		"": "", "look": "read", "work": "read write", "look shell": "exec read", "work shell other gone": "exec read write", "work deny": "", "other": "", "work newer": "",
	} {
		if got := strings.Join(c.LocalCapabilities(c.store.View(), strings.Fields(policies)), " "); got != want {
			t.Errorf("%q allow %q, not %q", policies, got, want)
		}
	}
	before, look := c.store.View(), []string{"look"}
	first := c.LocalCapabilities(before, look)
	if again := c.LocalCapabilities(c.store.View(), look); &again[0] != &first[0] {
		t.Error("what policies allow is computed again although none has changed")
	}
	c.storePolicy("look", `local { policy = "write" }`)
	for _, test := range []struct {
		view *state.View
		want string
	}{{c.store.View(), "read write"}, {before, "read"}, {c.store.View(), "read write"}} {
		if got := strings.Join(c.LocalCapabilities(test.view, look), " "); got != test.want {
			t.Errorf("after a change the policy allows %q, not %q", got, test.want)
		}
	}
}
