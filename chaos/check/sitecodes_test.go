package check_test

import (
	"fmt"
	"testing"
	"time"

	"skerry/chaos/check"
)

// useCode tells of a step in the life of a site code.
func (p *violationHarness) useCode(u check.SiteCodeUse) {
	if u.Code == "" {
		u.Code = "k7m2"
	}
	p.feedObservation(check.Observation{SiteCode: &u})
}

// tryCode has a person on the site of edge-1 try the code, tryCodeAt one on the site of another edge.
func (p *violationHarness) tryCode(capability string, allowed bool) {
	p.tryCodeAt(p.e, capability, allowed)
}

func (p *violationHarness) tryCodeAt(e *told, capability string, allowed bool) {
	p.useCode(check.SiteCodeUse{What: check.SiteCodeTried, Edge: e.name, Capability: capability, Allowed: allowed})
}

// makeCode has a hub make the code, and waits until edge-1 was told.
func (p *violationHarness) makeCode() {
	p.useCode(check.SiteCodeUse{What: check.SiteCodeMade})
	p.advanceTime(70 * time.Second)
}

func (p *violationHarness) revokeCode() { p.useCode(check.SiteCodeUse{What: check.SiteCodeRevoked}) }

func inSiteCodes() []violationCase {
	return []violationCase{
		{"a code is refused on an edge that is away", check.SiteCodes, nil, func(p *violationHarness) {
			p.makeCode()
			p.disconnectEdge()
			p.tryCode(check.SiteCodeMayRead, false)
		}},
		{"a revoked code is good", check.SiteCodes, nil, func(p *violationHarness) {
			p.makeCode()
			p.revokeCode()
			p.advanceTime(70 * time.Second)
			p.tryCode(check.SiteCodeMayRead, true)
		}},
		{"a code that was revoked before the cut is good", check.SiteCodes, nil, func(p *violationHarness) {
			p.makeCode()
			p.revokeCode()
			p.advanceTime(70 * time.Second)
			p.disconnectEdge()
			p.advanceTime(time.Hour)
			p.tryCode(check.SiteCodeMayRead, true)
		}},
		{"a code that was revoked after the cut is good when the link is back", check.SiteCodes, nil, func(p *violationHarness) {
			p.makeCode()
			heal := p.cutEdgeLink(p.other)
			p.advanceTime(15 * time.Second)
			p.missDeadline(p.other)
			p.revokeCode()
			heal()
			p.other.cut = false
			p.openSession(p.other)
			p.sendRows(p.other)
			p.advanceTime(70 * time.Second)
			p.tryCodeAt(p.other, check.SiteCodeMayRead, true)
		}},
		{"a code is good for more than its policy allows", check.SiteCodes, nil, func(p *violationHarness) {
			p.makeCode()
			p.tryCode("write", true)
		}},
	}
}

// TestSiteCodesAsTheyMayBe has people use codes as edges may answer.
func TestSiteCodesAsTheyMayBe(t *testing.T) {
	for name, do := range map[string]func(p *violationHarness){
		"an edge that was not told refuses it, or takes it": func(p *violationHarness) {
			p.disconnectEdge()
			p.useCode(check.SiteCodeUse{What: check.SiteCodeMade})
			p.tryCode(check.SiteCodeMayRead, false)
			p.tryCode(check.SiteCodeMayRead, true)
		},
		"an edge that is away takes a code that was revoked since": func(p *violationHarness) {
			p.makeCode()
			p.disconnectEdge()
			p.revokeCode()
			p.advanceTime(time.Hour)
			p.tryCode(check.SiteCodeMayRead, true)
			p.tryCode("write", false)
		},
		"an edge takes it for a moment after the revocation, and refuses it then": func(p *violationHarness) {
			p.makeCode()
			p.revokeCode()
			p.advanceTime(time.Second)
			p.tryCode(check.SiteCodeMayRead, true)
			p.advanceTime(70 * time.Second)
			p.tryCode(check.SiteCodeMayRead, false)
		},
		"a wrong clock ends a code": func(p *violationHarness) {
			p.makeCode()
			p.beginFault("clock-jump", []check.Effect{check.MovesTime}, p.e.name)()
			p.tryCode(check.SiteCodeMayRead, false)
		},
		"damage of the journal loses it": func(p *violationHarness) {
			p.makeCode()
			p.beginFault("bit-flip", []check.Effect{check.Damages}, p.e.name)()
			p.tryCode(check.SiteCodeMayRead, false)
		},
		"hubs are put back to before the revocation": func(p *violationHarness) {
			p.makeCode()
			p.revokeCode()
			p.advanceTime(70 * time.Second)
			p.putBack(p.index)
			p.openSession(p.e)
			p.tryCode(check.SiteCodeMayRead, true)
		},
		"only the newest codes are remembered": func(p *violationHarness) {
			p.makeCode()
			for n := range 20 {
				p.advanceTime(time.Second)
				p.useCode(check.SiteCodeUse{Code: fmt.Sprint(n), What: check.SiteCodeMade})
			}
			p.tryCode("write", true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newViolationHarness(t, nil)
			do(p)
			p.mustFindNothing()
		})
	}
}
