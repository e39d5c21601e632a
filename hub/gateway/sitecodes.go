package gateway

import (
	"context"
	"slices"
	"strings"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

// siteCodeSender sends an edge the codes of people that its site and its node pool take, and has it forget others that it
// holds. Its owner is the goroutine of runSendLoop.
type siteCodeSender struct {
	s        *session
	outcomes deliveryOutcomes
	sent     siteCodeInputs                         // what the edge holds was computed from these
	held     map[string]syncproto.DeliveredSiteCode // what the edge has; nil: it was not asked yet
	overflow bool                                   // it was logged that there are too many
	request  func(ctx context.Context, list []syncproto.DeliveredSiteCode) ([]syncproto.DeliveredSiteCode, error)
}

// siteCodeInputs are what decides which codes an edge has.
type siteCodeInputs struct {
	tables siteCodeTables
	place  codePlace
}

func newSiteCodeSender(s *session) *siteCodeSender {
	c := &siteCodeSender{s: s}
	c.request = func(ctx context.Context, list []syncproto.DeliveredSiteCode) ([]syncproto.DeliveredSiteCode, error) {
		text, err := s.sendDelivery(ctx, syncproto.Request{Kind: syncproto.RequestSiteCodes, SiteCodes: list}, syncproto.MaxHeldSiteCodes)
		if err != nil {
			return nil, err
		}
		return syncproto.DecodeSiteCodes(text)
	}
	return c
}

// sendChanges sends what has changed since the last call, and has watch watch what it depends on. It reports whether it
// has to be called again although nothing changes.
func (c *siteCodeSender) sendChanges(ctx context.Context, watch *state.View, node *fleet.Node) (retry bool) {
	if c.outcomes.unsupported || c.s.gw.cfg.LocalCapabilities == nil {
		return false
	}
	now := siteCodeInputs{siteCodeTables{codes: watch.TableIndex("site_codes")}, codePlace{node.AtSite(), node.NodePool}}
	if now.tables.codes == 0 {
		return false // there was never a site code
	}
	if now.tables.policies = watch.TableIndex("acl_policies"); c.held != nil && now == c.sent {
		return false
	}
	err := c.trySendChanges(ctx, now.place)
	if err == nil {
		c.outcomes.warned, c.sent = "", now
		return false
	}
	return c.outcomes.noteFailure(ctx, c.s.log, "site codes not delivered to the edge", err)
}

func (c *siteCodeSender) trySendChanges(ctx context.Context, place codePlace) error {
	if c.held == nil {
		if err := c.exchangeCodes(ctx, nil); err != nil {
			return err
		}
	}
	wanted, view := c.s.gw.siteCodes.codesFor(place)
	if wanted.count > syncproto.MaxSiteCodes && !c.overflow {
		c.s.log.Warn("the edge gets only the oldest of its site codes: revoke some", "count", wanted.count, "max", syncproto.MaxSiteCodes)
		c.overflow = true
	}
	var batch []syncproto.DeliveredSiteCode
	for id, held := range c.held {
		if _, ok := wanted.codes[id]; ok {
			continue
		}
		// Of a code that the state does not have nothing is said: it has ended, or a restore has taken it away.
		if row, ok := view.SiteCode(id); ok {
			batch = append(batch, syncproto.DeliveredSiteCode{ID: id, ModifyIndex: max(row.ModifyIndex, held.ModifyIndex), Revoked: true})
		}
	}
	for id, d := range wanted.codes {
		if held, ok := c.held[id]; !ok || held.ModifyIndex != d.ModifyIndex || !slices.Equal(held.Capabilities, d.Capabilities) {
			batch = append(batch, *d)
		}
	}
	if len(batch) == 0 {
		return nil
	}
	slices.SortFunc(batch, func(a, b syncproto.DeliveredSiteCode) int {
		if a.Revoked != b.Revoked { // those that make room come first
			if a.Revoked {
				return -1
			}
			return 1
		}
		return strings.Compare(a.ID, b.ID)
	})
	return c.exchangeCodes(ctx, batch)
}

// exchangeCodes sends codes, and notes what the edge holds then.
func (c *siteCodeSender) exchangeCodes(ctx context.Context, list []syncproto.DeliveredSiteCode) error {
	all, err := c.request(ctx, list)
	if err != nil {
		return err
	}
	c.held = make(map[string]syncproto.DeliveredSiteCode, len(all))
	for _, d := range all {
		c.held[d.ID] = d
	}
	return nil
}
