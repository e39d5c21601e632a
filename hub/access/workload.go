package access

import (
	"crypto/sha256"
	"slices"

	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/hub/state"
	"skerry/hub/workload"
)

// workloadCache keeps the verified claims of identities by the hash of their text, and the actors that policies make of
// them. Resolver.mu guards it.
type workloadCache struct {
	claims   map[[sha256.Size]byte]*workload.Claims
	actors   map[[sha256.Size]byte]*Actor
	attached map[attachedJob][]*fleet.ACLPolicy // the policies with a JobACL; nil: not collected yet
}

// attachedJob is a job that policies are attached to.
type attachedJob struct {
	namespace string
	job       fleet.JobID
}

func newWorkloadCache() workloadCache {
	return workloadCache{claims: map[[sha256.Size]byte]*workload.Claims{}, actors: map[[sha256.Size]byte]*Actor{}}
}

// dropActors forgets what depends on policies.
func (c *workloadCache) dropActors() {
	clear(c.actors)
	c.attached = nil
}

// resolveWorkload returns the actor of the identity of a workload. The actor of an error is the one that the identity
// names, if a hub has signed it.
func (r *Resolver) resolveWorkload(v *state.View, now generation, hash [sha256.Size]byte, token string) (*Actor, error) {
	r.mu.RLock()
	claims, actor := r.workloads.claims[hash], r.workloads.actors[hash]
	current := r.generation == now
	r.mu.RUnlock()
	if claims == nil {
		verified, err := workload.Verify(token, v.IdentityKey)
		if err != nil {
			return nil, err
		}
		claims = &verified
	}
	a, err := CheckIdentity(v, claims, r.newestTime(), r.cfg.Issuer)
	if err != nil {
		return &Actor{Workload: claims, ACL: acl.New()}, err
	}
	if actor != nil && current {
		return actor, nil
	}
	return r.keepWorkload(v, now, hash, claims, a), nil
}

// keepWorkload makes the actor of a workload, and keeps it unless the view is older than what is kept.
func (r *Resolver) keepWorkload(v *state.View, now generation, hash [sha256.Size]byte, claims *workload.Claims, a *fleet.Alloc) *Actor {
	r.mu.Lock()
	defer r.mu.Unlock()
	if older := now.policies < r.generation.policies || now.roles < r.generation.roles; older {
		return r.newWorkloadActor(v, attachedPolicies(v), claims, a)
	}
	if now != r.generation {
		r.dropCaches(now)
	}
	if len(r.workloads.claims) >= maxCached {
		r.workloads = newWorkloadCache()
	}
	if r.workloads.attached == nil {
		r.workloads.attached = attachedPolicies(v)
	}
	actor := r.newWorkloadActor(v, r.workloads.attached, claims, a)
	r.workloads.claims[hash], r.workloads.actors[hash] = claims, actor
	return actor
}

// attachedPolicies collects the policies that are attached to jobs.
func attachedPolicies(v *state.View) map[attachedJob][]*fleet.ACLPolicy {
	all := map[attachedJob][]*fleet.ACLPolicy{}
	for p := range v.ACLPolicies() {
		if p.JobACL != nil {
			at := attachedJob{p.JobACL.Namespace, p.JobACL.JobID}
			all[at] = append(all[at], p)
		}
	}
	return all
}

// newWorkloadActor makes the actor of a task of an allocation. r.mu is held.
func (r *Resolver) newWorkloadActor(v *state.View, attached map[attachedJob][]*fleet.ACLPolicy, claims *workload.Claims, a *fleet.Alloc) *Actor {
	actor := &Actor{Name: claims.Subject, Workload: claims}
	for _, p := range attached[attachedJob{a.Namespace, a.JobOfIdentity()}] {
		if p.AttachedTo(a.Namespace, a.JobOfIdentity(), a.TaskGroup, claims.Task) {
			actor.Policies = append(actor.Policies, p.Name)
		}
	}
	slices.Sort(actor.Policies)
	actor.ACL = acl.NewOfWorkload(a.Namespace, a.VariablePaths(claims.Task), r.parsePolicies(v, actor.Policies)...)
	return actor
}
