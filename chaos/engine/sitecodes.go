package engine

import (
	"context"
	"fmt"
	"time"

	"skerry/api"
	"skerry/chaos/check"
	"skerry/chaos/hubclient"
	"skerry/chaos/schedule"
	"skerry/client"
	"skerry/edge/local"
	"skerry/fleet"
)

// sitePolicy is the policy of the codes of people on site, by siteRules.
const (
	sitePolicy = "on-site"
	siteRules  = `local { capabilities = ["` + check.SiteCodeMayRead + `"] }`
	// siteCodeTTL is longer than any fault.
	siteCodeTTL = "24h"
)

// triesAfterRevocation are the pauses between the tries of a code that was revoked.
var triesAfterRevocation = []time.Duration{20 * time.Second, time.Minute, 2 * time.Minute}

// codeBearer is a person on the site of an edge who has a site code.
type codeBearer struct {
	p    *Faults
	edge string
	code api.CreatedSiteCode
	hits uint64 // number of tries that the edge answered
}

// useSiteCode has a hub make a code for a person on the site of an edge. When the fault is healed, the person tries it, a hub
// revokes it, and the person tries it again, whatever has become of the edge's link meanwhile.
func useSiteCode(ctx context.Context, p *Faults, edge string, _ schedule.Fault) (Active, error) {
	u := p.Users
	if u.Access == nil {
		return Done(0, "access control is off"), nil
	}
	v := &codeBearer{p: p, edge: edge}
	err := u.repeatUntilAcked(ctx, func(ctx context.Context, n int) (err error) {
		v.code, err = MakeSiteCode(ctx, u.managerOfTurn(n), "a person at "+edge, u.Marks)
		return err
	})
	if err != nil {
		return Done(0, fmt.Sprintf("no code was made: %v", err)), nil
	}
	v.observeUse(check.SiteCodeUse{What: check.SiteCodeMade})
	return Active{Evidence: Counted(func() uint64 { return v.hits }), Heal: v.tryAndRevoke}, nil
}

// MakeSiteCode has a hub make a code for a person of that name on any site, and adds it to marks, which may be nil.
func MakeSiteCode(ctx context.Context, h hubclient.Hub, name string, marks *SecretMarks) (api.CreatedSiteCode, error) {
	if err := h.ApplyACLPolicy(ctx, fleet.ACLPolicy{Name: sitePolicy, Rules: siteRules}); err != nil {
		return api.CreatedSiteCode{}, err
	}
	code, err := h.CreateSiteCode(ctx, api.SiteCodeRequest{Name: name, Site: "*", Policies: []string{sitePolicy}, TTL: siteCodeTTL})
	marks.AddSiteCode(code.Code)
	return code, err
}

// tryAndRevoke tries the code, has it revoked, and tries it again.
func (v *codeBearer) tryAndRevoke(ctx context.Context) error {
	u := v.p.Users
	v.tryCode(ctx)
	known := true
	err := u.repeatUntilAcked(ctx, func(ctx context.Context, n int) error {
		err := u.managerOfTurn(n).RevokeSiteCode(ctx, v.code.ID)
		if client.StatusOf(err) == 404 { // the hubs were put back
			known, err = false, nil
		}
		return err
	})
	if err != nil || !known {
		return nil // nobody knows whether it is revoked, and nothing is wrong with that
	}
	v.observeUse(check.SiteCodeUse{What: check.SiteCodeRevoked})
	for _, pause := range triesAfterRevocation {
		if u.Elapsed()+pause > u.Schedule.Length+lastCalls || !Pause(ctx, pause) {
			return nil
		}
		v.tryCode(ctx)
	}
	return nil
}

// tryCode asks the edge for what the code allows, and for more.
func (v *codeBearer) tryCode(ctx context.Context) {
	for _, capability := range []string{check.SiteCodeMayRead, "write"} {
		door, ok := v.p.OnSite(v.edge).(local.Doorkeeper)
		if !ok {
			return // the agent does not run
		}
		_, err := door.Admit(ctx, v.code.Code, capability)
		if err != nil && fleet.CodeOf(err) != fleet.CodeForbidden {
			continue // a full disk, or the agent ends
		}
		v.hits++
		v.observeUse(check.SiteCodeUse{What: check.SiteCodeTried, Edge: v.edge, Capability: capability, Allowed: err == nil})
	}
}

func (v *codeBearer) observeUse(u check.SiteCodeUse) {
	u.Code = v.code.ID
	v.p.Observe(check.Observation{SiteCode: &u})
}
