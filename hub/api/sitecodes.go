package api

import (
	"net/http"
	"strings"
	"time"
	"unicode"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/hub/state"
	"skerry/internal/sitecode"
	"skerry/syncproto"
)

// Bounds of a site code.
const (
	maxSiteCodeName = 64  // bytes
	maxSiteCodeGlob = 256 // bytes
	minSiteCodeTTL  = time.Minute
	maxSiteCodeTTL  = 2 * 365 * 24 * time.Hour
	// siteCodeDraws is how often a code is drawn whose id is taken.
	siteCodeDraws = 10
)

func (a *API) siteCodeEndpoints() []endpoint {
	return []endpoint{
		{"GET", "/v1/acl/site-codes", managementOnly, a.aclRead(a.listSiteCodes)},
		{writes, "/v1/acl/site-code", managementOnly, aclWrite(a, a.createSiteCode)},
		{"DELETE", "/v1/acl/site-code/{name}", managementOnly, a.aclDelete(func(id string) state.Command {
			return state.SiteCodeRevoke{ID: strings.ToLower(id), Now: a.cfg.Now().UTC()}
		})},
	}
}

// listSiteCodes lists the site codes by id, without what people type.
func (a *API) listSiteCodes(v *state.View, r *http.Request, q query) (any, fleet.Index, error) {
	id := func(c *fleet.SiteCode) string { return c.ID }
	shown := func(yield func(*fleet.SiteCode) bool) {
		for row := range v.SiteCodes() {
			if !yield(&row.SiteCode) {
				return
			}
		}
	}
	answer, err := page(r, filterByPrefix(q, shown, id), id, unchangedItem[*fleet.SiteCode])
	return answer, v.TableIndex("site_codes"), err
}

// createSiteCode draws a site code. What the person types is in the answer alone: the state has only its hash.
func (a *API) createSiteCode(r *http.Request, req api.SiteCodeRequest) (any, fleet.Index, error) {
	code, err := newSiteCode(req, a.cfg.Now().UTC())
	if err != nil {
		return nil, 0, err
	}
	if err := a.cfg.Cluster.CatchUp(r.Context()); err != nil {
		return nil, 0, err
	}
	v := a.cfg.State.View()
	if err := a.checkLocalPolicies(v, &code); err != nil {
		return nil, 0, err
	}
	if err := checkSiteCodeBounds(v, &code); err != nil {
		return nil, 0, err
	}
	var text string
	record := state.SiteCodeRecord{SiteCode: code}
	for range siteCodeDraws {
		if text, record.ID, record.Hash, err = sitecode.Draw(); err != nil {
			return nil, 0, err
		}
		if _, taken := v.SiteCode(record.ID); !taken {
			break
		}
	}
	res, err := a.commitCommand(r.Context(), state.SiteCodeStore{Code: record})
	if err != nil {
		return nil, res.Index, err
	}
	record.CreateIndex, record.ModifyIndex = res.Index, res.Index
	a.cfg.Log.Info("site code made", "code", record.ID, "name", record.Name, "site", record.Site, "node_pool", record.NodePool)
	return api.CreatedSiteCode{SiteCode: record.SiteCode, Code: text}, res.Index, nil
}

// newSiteCode checks a request for a site code, and returns the code without its id.
func newSiteCode(req api.SiteCodeRequest, now time.Time) (fleet.SiteCode, error) {
	code := fleet.SiteCode{Name: strings.TrimSpace(req.Name), Site: req.Site, NodePool: req.NodePool, Policies: req.Policies, CreateTime: now}
	if code.NodePool == "" {
		code.NodePool = "*"
	}
	invalid := func(format string, args ...any) *fleet.Error {
		return fleet.Errorf(fleet.CodeInvalid, "create a site code: "+format, args...)
	}
	ttl, err := time.ParseDuration(req.TTL)
	switch {
	case code.Name == "":
		return code, invalid("it does not name the person").WithHint("the name is in the audit with all that is done with the code")
	case len(code.Name) > maxSiteCodeName || strings.ContainsFunc(code.Name, unicode.IsControl):
		return code, invalid("the name has %d bytes, of at most %d, or a control character", len(code.Name), maxSiteCodeName)
	case code.Site == "":
		return code, invalid("it names no site").WithHint(`"*" stands for every site, and shop-* for all whose name begins so`)
	case len(code.Site) > maxSiteCodeGlob || len(code.NodePool) > maxSiteCodeGlob:
		return code, invalid("its site or its node pool has more than %d bytes", maxSiteCodeGlob)
	case err != nil || ttl < minSiteCodeTTL || ttl > maxSiteCodeTTL:
		return code, invalid("it cannot end after %q: write it like 720h, from %s to %s", req.TTL, minSiteCodeTTL, maxSiteCodeTTL)
	}
	code.ExpirationTime = now.Add(ttl).Truncate(time.Second)
	return code, nil
}

// checkSiteCodeBounds refuses a code if the cluster, or a node that takes the code, would have more than its bound.
func checkSiteCodeBounds(v *state.View, code *fleet.SiteCode) error {
	count, valid := 0, []*state.SiteCodeRecord{}
	for c := range v.SiteCodes() {
		if count++; c.IsValid(code.CreateTime) {
			valid = append(valid, c)
		}
	}
	if count >= state.MaxSiteCodes {
		return fleet.Errorf(fleet.CodeConflict, "create a site code for %s: the cluster has %d, which is its bound", code.Name, count).
			WithHint("codes that have ended are removed within some minutes; make codes that end sooner")
	}
	seen := map[[2]string]bool{}
	for n := range v.Nodes("") {
		site, pool := n.AtSite(), n.NodePool
		if seen[[2]string{site, pool}] || !code.IsFor(site, pool) {
			continue
		}
		seen[[2]string{site, pool}] = true
		taken := 0
		for _, c := range valid {
			if c.IsFor(site, pool) {
				taken++
			}
		}
		if taken >= syncproto.MaxSiteCodes {
			return fleet.Errorf(fleet.CodeConflict, "create a site code for %s: the nodes of site %s in the node pool %s take %d already, which is their bound", code.Name, site, pool, taken).
				WithHint("revoke some with skerry acl site-code revoke, or give each code its own site")
		}
	}
	return nil
}

// checkLocalPolicies refuses policies that do not exist, and those that allow nothing on site.
func (a *API) checkLocalPolicies(v *state.View, code *fleet.SiteCode) error {
	for _, name := range code.Policies {
		if _, ok := v.ACLPolicy(name); !ok {
			return fleet.Errorf(fleet.CodeInvalid, "create a site code for %s: there is no policy %q", code.Name, name)
		}
	}
	if len(a.cfg.Access.LocalCapabilities(v, code.Policies)) == 0 {
		return fleet.Errorf(fleet.CodeInvalid, "create a site code for %s: its policies allow nothing on site", code.Name).
			WithHint("%s in one of them lets it look, %s stop and start", acl.Requirement{Kind: acl.KindLocal, Capability: acl.Read}.Rule(),
				acl.Requirement{Kind: acl.KindLocal, Capability: acl.Write}.Rule())
	}
	return nil
}
