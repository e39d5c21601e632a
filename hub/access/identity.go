package access

import (
	"slices"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/hub/workload"
	"skerry/syncproto/nodekey"
)

// clockSkew is how far the clocks of hubs may differ.
const clockSkew = time.Minute

// CheckIdentity returns the allocation of a token that was verified, if the token counts for this cluster's hubs now: by its
// time, its issuer (that of the hubs, or none) and its audience. CodeForbidden: it does not, or its allocation has ended.
func CheckIdentity(v *state.View, c *workload.Claims, now time.Time, issuer string) (*fleet.Alloc, error) {
	issuers := []string{"", issuer}
	if c.SignedBy != "" {
		if _, err := v.IdentityKey(c.KeyID); err != nil {
			return nil, err
		}
		issuers = []string{nodekey.Issuer("", c.SignedBy), nodekey.Issuer(issuer, c.SignedBy)}
	} else if _, ok := v.RootKey(c.KeyID); !ok {
		return nil, workload.Refusal("its key %.64q was removed", c.KeyID)
	}
	switch {
	case c.Expires != 0 && now.Unix() >= c.Expires:
		return nil, workload.Refusal("it expired at %s", time.Unix(c.Expires, 0).UTC().Format(time.RFC3339)).
			WithHint("the task has to read its file again: the edge renews it while there is a link")
	case now.Unix()+int64(clockSkew/time.Second) < c.NotBefore:
		return nil, workload.Refusal("it is not valid before %s", time.Unix(c.NotBefore, 0).UTC().Format(time.RFC3339)).WithHint("the clocks of the hubs differ")
	case !slices.Contains(issuers, c.Issuer):
		return nil, workload.Refusal("its issuer is %.200q, and has to be %q", c.Issuer, issuers[1]).WithHint("set --oidc-issuer to the same URL on all hubs")
	case !slices.Contains(c.Audience, fleet.DefaultAudience):
		return nil, workload.Refusal("its audience is not %s", fleet.DefaultAudience).WithHint("use the task's default identity for the hubs")
	}
	a, ok := v.Alloc(c.AllocID)
	switch {
	case !ok:
		return nil, workload.Refusal("there is no allocation %.64s", c.AllocID)
	case a.Terminal():
		return nil, workload.Refusal("allocation %s has ended", a.ID)
	case isRevoked(v, a.NodeID):
		return nil, workload.Refusal("node %s of allocation %s is revoked", a.NodeID, a.ID)
	case a.Namespace != c.Namespace || a.JobOfIdentity() != c.JobID || a.Group() == nil || a.Group().Task(c.Task) == nil:
		return nil, workload.Refusal("allocation %s has another job or no task %.64q", a.ID, c.Task)
	}
	if c.SignedBy != "" {
		if err := checkOffline(c, a); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// checkOffline returns why a token that the edge of the allocation's node has signed does not count; nil: it does. Everything
// else that it says was checked before.
func checkOffline(c *workload.Claims, a *fleet.Alloc) error {
	w := offlineIdentity(c, a)
	switch {
	case a.NodeID != c.SignedBy:
		return workload.Refusal("node %s has signed it, and allocation %s is on node %s", c.SignedBy, a.ID, a.NodeID)
	case c.Node != c.SignedBy || !c.Offline:
		return workload.Refusal("it does not say that node %s has signed it without a hub", c.SignedBy)
	case w == nil:
		return workload.Refusal("no identity of task %.64q with the subject %.200q lets the edge sign it", c.Task, c.Subject).
			WithHint("offline = true in the identity block of the job allows it")
	case !slices.Equal(c.Audience, w.Audience):
		return workload.Refusal("its audience is not that of identity %s", w.Name)
	case c.Expires == 0 || c.Expires-c.IssuedAt > workload.Seconds(w.TTL) || c.NotBefore != c.IssuedAt:
		return workload.Refusal("it lasts longer than identity %s", w.Name)
	}
	return nil
}

// offlineIdentity returns the identity of an allocation's task that a token is of; nil: none that an edge may sign.
func offlineIdentity(c *workload.Claims, a *fleet.Alloc) *fleet.WorkloadIdentity {
	all := a.Group().Task(c.Task).DeliveredIdentities() // CheckIdentity has refused those of services
	i := slices.IndexFunc(all, func(w fleet.WorkloadIdentity) bool {
		return w.Offline && a.IdentitySubject(c.Task, w.Name) == c.Subject
	})
	if i < 0 {
		return nil
	}
	return &all[i]
}

func isRevoked(v *state.View, node fleet.NodeID) bool {
	_, revoked := v.Revocation(node)
	return revoked
}
