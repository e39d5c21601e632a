package gateway

import (
	"cmp"
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
	codes, policies fleet.Index
	site, pool      string
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
	now := siteCodeInputs{codes: watch.TableIndex("site_codes"), site: node.AtSite(), pool: node.NodePool}
	if now.codes == 0 {
		return false // there was never a site code
	}
	if now.policies = watch.TableIndex("acl_policies"); c.held != nil && now == c.sent {
		return false
	}
	err := c.trySendChanges(ctx, now)
	if err == nil {
		c.outcomes.warned, c.sent = "", now
		return false
	}
	return c.outcomes.noteFailure(ctx, c.s.log, "site codes not delivered to the edge", err)
}

func (c *siteCodeSender) trySendChanges(ctx context.Context, now siteCodeInputs) error {
	if c.held == nil {
		if err := c.exchangeCodes(ctx, nil); err != nil {
			return err
		}
	}
	view := c.s.gw.cfg.State.View()
	wanted := c.wantedCodes(view, now)
	var batch []syncproto.DeliveredSiteCode
	for id, held := range c.held {
		if _, ok := wanted[id]; ok {
			continue
		}
		// Of a code that the state does not have nothing is said: it has ended, or a restore has taken it away.
		if row, ok := view.SiteCode(id); ok {
			batch = append(batch, syncproto.DeliveredSiteCode{ID: id, ModifyIndex: max(row.ModifyIndex, held.ModifyIndex), Revoked: true})
		}
	}
	for id, d := range wanted {
		if held, ok := c.held[id]; !ok || held.ModifyIndex != d.ModifyIndex || !slices.Equal(held.Capabilities, d.Capabilities) {
			batch = append(batch, d)
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

// wantedCodes returns the codes that an edge of a site and a pool takes, by id. Of too many it returns those that were made
// first, so that another one does not take them away.
func (c *siteCodeSender) wantedCodes(view *state.View, now siteCodeInputs) map[string]syncproto.DeliveredSiteCode {
	var rows []*state.SiteCodeRecord
	for row := range view.SiteCodes() {
		if row.IsValid(c.s.gw.cfg.Now()) && row.IsFor(now.site, now.pool) {
			rows = append(rows, row)
		}
	}
	if len(rows) > syncproto.MaxSiteCodes {
		if !c.overflow {
			c.s.log.Warn("the edge gets only the oldest of its site codes: revoke some", "count", len(rows), "max", syncproto.MaxSiteCodes)
		}
		slices.SortFunc(rows, func(a, b *state.SiteCodeRecord) int { return cmp.Compare(a.CreateIndex, b.CreateIndex) })
		rows = rows[:syncproto.MaxSiteCodes]
		c.overflow = true
	}
	wanted := make(map[string]syncproto.DeliveredSiteCode, len(rows))
	for _, row := range rows {
		wanted[row.ID] = syncproto.DeliveredSiteCode{
			ID: row.ID, ModifyIndex: row.ModifyIndex, Name: row.Name, Capabilities: c.s.gw.cfg.LocalCapabilities(view, row.Policies),
			Salt: row.Hash.Salt, Hash: row.Hash.Hash, Rounds: row.Hash.Rounds, Expires: row.ExpirationTime.Unix(),
		}
	}
	return wanted
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
