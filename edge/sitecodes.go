package edge

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"

	"skerry/edge/local"
	"skerry/edge/sitecodes"
	"skerry/fleet"
	"skerry/syncproto"
)

// verbSiteCode is the verb of a site code that was refused.
const verbSiteCode = "site code"

// openSiteCodes opens the keeper of the codes of people on site.
func (e *Edge) openSiteCodes() (err error) {
	e.siteCodes, err = sitecodes.Open(sitecodes.Config{
		Journal: e.journal, Sealer: e.machine, Now: e.cfg.Now, Log: e.log.With("component", "sitecodes"),
	})
	if err != nil {
		return fmt.Errorf("open edge: %w", err)
	}
	return nil
}

// acceptSiteCodes keeps the codes that a hub delivers, and answers with what the edge holds.
func (e *Edge) acceptSiteCodes(ctx context.Context, list []syncproto.DeliveredSiteCode) (io.ReadCloser, error) {
	held, err := e.siteCodes.Accept(ctx, list)
	if err != nil {
		return nil, err
	}
	text, err := syncproto.EncodeSiteCodes(held)
	return io.NopCloser(bytes.NewReader(text)), err
}

// Admit implements local.Doorkeeper. Whoever may open the socket may do everything without a code, unless the edge requires
// one. A refused try is in the audit.
func (a agent) Admit(ctx context.Context, code, capability string) (context.Context, error) {
	if code == "" {
		if a.e.cfg.RequireSiteCode && local.PeerUser(ctx).UID != "0" {
			return nil, fleet.Errorf(fleet.CodeForbidden, "use the local API: this edge requires a site code").
				WithHint("give it at a terminal, with SKERRY_SITE_CODE or with --site-code; skerry acl site-code create makes one on a hub")
		}
		return ctx, nil
	}
	d, tried, err := a.e.siteCodes.Check(ctx, code)
	if err != nil {
		if tried {
			a.recordAction(ctx, verbSiteCode, d.ID, "", err)
		}
		return nil, err
	}
	ctx = local.WithPerson(ctx, d.Name, d.ID)
	if !slices.Contains(d.Capabilities, capability) {
		err := fleet.Errorf(fleet.CodeForbidden, "use the local API: the site code of %s does not have the capability %q", d.Name, capability).
			WithHint(`a policy of the code must have a block such as local { capabilities = [%q] }`, capability)
		a.recordAction(ctx, verbSiteCode, capability, "", err)
		return nil, err
	}
	return ctx, nil
}
