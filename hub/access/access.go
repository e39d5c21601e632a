// Package access says who asks: it resolves the secret of a request into an Actor with its ACL.
//
// hub.Open makes the Resolver, and hub/api asks it for each request. Compiled ACLs are kept by the policies that make
// them, and actors by the hash of their secret, until a policy or a role changes. When any token changes, the row of an
// actor's token is looked at again. The identity of a workload is verified once, and its claims are checked for each
// request. Requests with unknown tokens share one call to the leader. The package starts no goroutine and persists
// nothing.
package access

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/fleet/aclpolicy"
	"skerry/hub/state"
	"skerry/hub/workload"
)

// AnonymousPolicy is the name of the policy for requests without a token.
const AnonymousPolicy = "anonymous"

// maxCached bounds the actors and the ACLs that are kept: when there are more, all are dropped.
const maxCached = 1 << 17

// Config of a Resolver. State is required.
type Config struct {
	State *state.Store
	// CatchUp waits until State has everything that was committed before: a token that is unknown may be new. nil: none.
	CatchUp func(ctx context.Context) error
	// Enabled turns access control on before the cluster is bootstrapped. Afterwards it is always on.
	Enabled bool
	// Known is closed once State has what tells whether access control is on; until then nobody is served without. nil: it
	// has it.
	Known  <-chan struct{}
	Issuer string // of the identities of workloads; "": they name none
	Now    func() time.Time
	Log    *slog.Logger
}

// Actor is who asks, and what that one may do. It does not change.
type Actor struct {
	Accessor string   // of the token; "": anonymous, or access control is off
	Name     string   // of the token
	Roles    []string // names of the token's roles, sorted
	Policies []string // with those of its roles, sorted; none of a management token
	ACL      *acl.ACL
	Token    *fleet.ACLToken  // nil: no token
	Workload *workload.Claims // of the identity of a workload; nil: it is none
}

// unrestricted is the actor of every request while access control is off.
var unrestricted = &Actor{ACL: acl.Management}

// Resolver resolves secrets. It is safe for concurrent use.
type Resolver struct {
	cfg          Config
	bootstrapped atomic.Bool // it stays so

	mu         sync.RWMutex
	generation generation
	actors     map[[sha256.Size]byte]cachedActor
	acls       map[string]*acl.ACL // by the names of the policies, joined
	local      map[string][]string // what they allow a person on site, of the policies at localAt
	localAt    fleet.Index
	parsed     map[string]*parsedPolicy // by name
	workloads  workloadCache
	latest     time.Time // the newest time that was seen: a clock that goes back revives no token
}

// generation is the state of policies and roles that the caches are made from.
type generation struct{ policies, roles fleet.Index }

// cachedActor is an actor with the row that it was made from (nil: the anonymous one), which was looked at when the table
// of tokens had the index tokens.
type cachedActor struct {
	row    *state.ACLTokenRecord
	tokens fleet.Index
	actor  *Actor
}

type parsedPolicy struct {
	modified fleet.Index
	policy   *acl.Policy // nil: it does not parse
}

// New makes a Resolver. It starts nothing.
func New(cfg Config) *Resolver {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	r := &Resolver{cfg: cfg, local: map[string][]string{}, parsed: map[string]*parsedPolicy{}, workloads: newWorkloadCache()}
	r.dropCaches(generation{})
	return r
}

// HashSecret returns what the state keeps of a secret.
func HashSecret(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// Enabled tells whether access control is on: by this hub's configuration, or since the cluster was bootstrapped.
func (r *Resolver) Enabled(v *state.View) bool {
	if r.cfg.Enabled || r.bootstrapped.Load() {
		return true
	}
	_, bootstrapped := v.ACLBootstrap()
	if bootstrapped {
		r.bootstrapped.Store(true)
	}
	return bootstrapped
}

// Resolve returns who has a secret; "": the anonymous actor. CodeForbidden: no token has it, or the token has ended. The
// actor of such an error is nil, or the workload that the refused identity names.
func (r *Resolver) Resolve(ctx context.Context, secret string) (*Actor, error) {
	actor, err := r.ResolveIn(r.cfg.State.View(), secret)
	if err == nil || secret == "" || r.cfg.CatchUp == nil {
		return actor, err
	}
	if caughtUp := r.cfg.CatchUp(ctx); caughtUp != nil {
		return actor, caughtUp
	}
	return r.ResolveIn(r.cfg.State.View(), secret)
}

// ResolveIn is Resolve by one view of the state, without waiting for a newer one. It reads from the view what the token
// depends on, so that a view of Store.Watch changes with it.
func (r *Resolver) ResolveIn(v *state.View, secret string) (*Actor, error) {
	if !r.Enabled(v) {
		return r.letEverybodyIn()
	}
	now, tokens := generation{v.TableIndex("acl_policies"), v.TableIndex("acl_roles")}, v.TableIndex("acl_tokens")
	var hash [sha256.Size]byte
	if secret != "" {
		hash = sha256.Sum256([]byte(secret))
	}
	r.mu.RLock()
	kept, ok := r.actors[hash]
	ok = ok && r.generation == now
	r.mu.RUnlock()
	if !ok || kept.tokens != tokens {
		var row *state.ACLTokenRecord
		if secret != "" {
			row, _ = v.ACLTokenByHash(hash[:])
			switch {
			case row == nil && workload.IsToken(secret):
				return r.resolveWorkload(v, now, hash, secret)
			case row == nil:
				return nil, fleet.Errorf(fleet.CodeForbidden, "ACL token not found").
					WithHint("no token of this cluster has this secret: it is another cluster's, or was deleted or has ended")
			}
		}
		if !ok || kept.row != row {
			kept.actor = r.newActor(v, row)
		}
		kept.row, kept.tokens = row, tokens
		kept = r.keepActor(v, now, hash, kept)
	}
	if row := kept.row; row != nil && row.ExpirationTime != nil && row.IsExpired(r.newestTime()) {
		return nil, fleet.Errorf(fleet.CodeForbidden, "ACL token expired").WithHint("it ended at %s", row.ExpirationTime.Format(time.RFC3339))
	}
	return kept.actor, nil
}

// letEverybodyIn returns the actor of requests while access control is off, or an error: this hub cannot know yet that it
// is.
func (r *Resolver) letEverybodyIn() (*Actor, error) {
	if r.cfg.Known != nil {
		select {
		case <-r.cfg.Known:
		default:
			return nil, fleet.Errorf(fleet.CodeUnavailable, "this hub joins its cluster, and does not know yet who may do what").
				WithHint("ask another hub, or wait until this one says in its log that it is ready")
		}
	}
	return unrestricted, nil
}

// newestTime returns the time, which does not go back.
func (r *Resolver) newestTime() time.Time {
	now := r.cfg.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.After(r.latest) {
		r.latest = now
	}
	return r.latest
}

// newActor returns the actor of a token, nil: the anonymous one, without its ACL.
func (r *Resolver) newActor(v *state.View, row *state.ACLTokenRecord) *Actor {
	if row == nil {
		return &Actor{Policies: []string{AnonymousPolicy}}
	}
	shown := v.ACLTokenShown(row)
	return &Actor{Accessor: row.AccessorID, Name: row.Name, Roles: shown.RoleNames(), Policies: policiesOf(v, &shown), Token: &shown}
}

// keepActor gives a new actor its ACL, and keeps it unless the view is older than what is kept.
func (r *Resolver) keepActor(v *state.View, now generation, hash [sha256.Size]byte, next cachedActor) cachedActor {
	r.mu.Lock()
	defer r.mu.Unlock()
	older := now.policies < r.generation.policies || now.roles < r.generation.roles
	if !older && (now != r.generation || len(r.actors) >= maxCached || len(r.acls) >= maxCached) {
		r.dropCaches(now)
	}
	switch {
	case next.actor.ACL != nil:
	case older:
		next.actor.ACL = r.compileACL(v, next.actor, map[string]*acl.ACL{})
	default:
		next.actor.ACL = r.compileACL(v, next.actor, r.acls)
	}
	if !older {
		r.actors[hash] = next
	}
	return next
}

// dropCaches empties the caches for a generation. Policies that were read stay: they know their index.
func (r *Resolver) dropCaches(g generation) {
	r.generation, r.actors, r.acls = g, map[[sha256.Size]byte]cachedActor{}, map[string]*acl.ACL{}
	r.workloads.dropActors()
}

// policiesOf returns the names of the policies of a token and of its roles, sorted.
func policiesOf(v *state.View, t *fleet.ACLToken) []string {
	names := slices.Clone(t.Policies)
	for _, link := range t.Roles {
		if role, ok := v.ACLRole(link.ID); ok {
			for _, p := range role.Policies {
				names = append(names, p.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// compileACL returns the ACL of an actor's policies, from kept ones where they have it. r.mu is held.
func (r *Resolver) compileACL(v *state.View, actor *Actor, kept map[string]*acl.ACL) *acl.ACL {
	if actor.Token != nil && actor.Token.Type == fleet.ACLTokenManagement {
		return acl.Management
	}
	joined := strings.Join(actor.Policies, "\n")
	if a, ok := kept[joined]; ok {
		return a
	}
	a := acl.New(r.parsePolicies(v, actor.Policies)...)
	kept[joined] = a
	return a
}

// parsePolicies returns policies that were read; none if one of them cannot be read. r.mu is held.
func (r *Resolver) parsePolicies(v *state.View, names []string) (policies []*acl.Policy) {
	for _, name := range names {
		stored, ok := v.ACLPolicy(name)
		if !ok {
			continue // as in Nomad: a policy that is gone allows nothing
		}
		p := r.parsePolicy(stored)
		if p == nil {
			return nil // it may deny something
		}
		policies = append(policies, p)
	}
	return policies
}

// parsePolicy returns a policy that was read; nil: this release cannot read it. r.mu is held.
func (r *Resolver) parsePolicy(stored *fleet.ACLPolicy) *acl.Policy {
	if p, ok := r.parsed[stored.Name]; ok && p.modified == stored.ModifyIndex {
		return p.policy
	}
	p, err := aclpolicy.Parse(stored.Rules)
	if err != nil {
		r.cfg.Log.Error("ACL policy cannot be read: its tokens may do nothing", "policy", stored.Name, "error", err)
	} else {
		p.Name = stored.Name
	}
	if len(r.parsed) >= maxCached {
		clear(r.parsed)
	}
	r.parsed[stored.Name] = &parsedPolicy{stored.ModifyIndex, p}
	return p
}

// ActorOf returns the actor of a token by its accessor, for explanations; ok is false if there is none.
func (r *Resolver) ActorOf(v *state.View, accessor string) (*Actor, bool) {
	row, ok := v.ACLToken(accessor)
	if !ok {
		return nil, false
	}
	actor := r.newActor(v, row)
	r.mu.Lock()
	defer r.mu.Unlock()
	actor.ACL = r.compileACL(v, actor, map[string]*acl.ACL{})
	return actor, true
}

// LocalCapabilities returns what policies allow a person on site: the capabilities of their blocks local, sorted. It is kept
// until a policy changes, and is not to be changed.
func (r *Resolver) LocalCapabilities(v *state.View, policies []string) []string {
	at, joined := v.TableIndex("acl_policies"), strings.Join(policies, "\n")
	r.mu.RLock()
	kept, ok := r.local[joined]
	ok = ok && r.localAt == at
	r.mu.RUnlock()
	if ok {
		return kept
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	union := acl.New(r.parsePolicies(v, policies)...)
	var allowed []string
	for _, c := range []acl.Capability{acl.Exec, acl.Read, acl.Write} {
		if union.Allows(acl.Requirement{Kind: acl.KindLocal, Capability: c}) {
			allowed = append(allowed, string(c))
		}
	}
	if at > r.localAt || len(r.local) >= maxCached {
		r.local, r.localAt = map[string][]string{}, max(at, r.localAt)
	}
	if at == r.localAt { // otherwise the view is older than what is kept
		r.local[joined] = allowed
	}
	return allowed
}
