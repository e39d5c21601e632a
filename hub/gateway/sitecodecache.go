package gateway

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

// maxCodePlaces bounds the places whose codes are kept: when there are more, those of all places are dropped.
const maxCodePlaces = 1024

// siteCodeCache has the codes that edges of a site and a pool take. It reads all codes once for each change of a code or a
// policy, whichever session asks first, so that the work of a change is not that of all edges with all codes. It is safe for
// concurrent use.
type siteCodeCache struct {
	cfg Config

	mu     sync.Mutex
	made   siteCodeTables
	ends   time.Time                   // when the first of the codes ends; zero: there are none
	bySite map[string][]*siteCodeGroup // those for one site
	globs  []*siteCodeGroup            // those for a pattern of sites
	places map[codePlace]wantedCodes
}

// siteCodeTables are the indexes of the tables that codes and what they allow are read from.
type siteCodeTables struct{ codes, policies fleet.Index }

// codePlace decides, with siteCodeTables, which codes an edge has.
type codePlace struct{ site, pool string }

// siteCodeGroup has the valid codes for the same pattern of sites and the same one of pools, the oldest first, but no more of
// them than an edge takes.
type siteCodeGroup struct {
	first *state.SiteCodeRecord
	codes []*siteCode
	count int
}

type siteCode struct {
	created   fleet.Index
	delivered syncproto.DeliveredSiteCode
}

// wantedCodes are the codes that an edge takes, by id. Of too many these are the ones that were made first, so that another
// one does not take them away. Sessions share them, and do not change them.
type wantedCodes struct {
	codes map[string]*syncproto.DeliveredSiteCode
	count int // with those that are too many
}

func newSiteCodeCache(cfg Config) *siteCodeCache {
	return &siteCodeCache{cfg: cfg, places: map[codePlace]wantedCodes{}}
}

// codesFor returns the codes that edges of a place take, and the state that says so.
func (c *siteCodeCache) codesFor(place codePlace) (wantedCodes, *state.View) {
	c.mu.Lock()
	defer c.mu.Unlock()
	view, now := c.cfg.State.View(), c.cfg.Now()
	tables := siteCodeTables{codes: view.TableIndex("site_codes"), policies: view.TableIndex("acl_policies")}
	if tables != c.made || !c.ends.IsZero() && !now.Before(c.ends) {
		c.readCodes(view, now)
		c.made = tables
	}
	wanted, ok := c.places[place]
	if !ok {
		wanted = c.collectCodes(place)
		if len(c.places) >= maxCodePlaces {
			clear(c.places)
		}
		c.places[place] = wanted
	}
	return wanted, view
}

// readCodes groups the codes that are valid now. c.mu is held.
func (c *siteCodeCache) readCodes(view *state.View, now time.Time) {
	c.ends, c.bySite, c.globs, c.places = time.Time{}, map[string][]*siteCodeGroup{}, nil, map[codePlace]wantedCodes{}
	var rows []*state.SiteCodeRecord
	for row := range view.SiteCodes() {
		if row.IsValid(now) {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b *state.SiteCodeRecord) int { return cmp.Compare(a.CreateIndex, b.CreateIndex) })
	groups, allowed := map[codePlace]*siteCodeGroup{}, map[string][]string{}
	for _, row := range rows {
		if c.ends.IsZero() || row.ExpirationTime.Before(c.ends) {
			c.ends = row.ExpirationTime
		}
		g := groups[codePlace{row.Site, row.NodePool}]
		if g == nil {
			g = &siteCodeGroup{first: row}
			groups[codePlace{row.Site, row.NodePool}] = g
			if strings.Contains(row.Site, "*") {
				c.globs = append(c.globs, g)
			} else {
				c.bySite[row.Site] = append(c.bySite[row.Site], g)
			}
		}
		if g.count++; g.count <= syncproto.MaxSiteCodes {
			g.codes = append(g.codes, c.newSiteCode(view, row, allowed))
		}
	}
}

// newSiteCode returns a code as it is delivered. allowed has what policies allow, by their names.
func (c *siteCodeCache) newSiteCode(view *state.View, row *state.SiteCodeRecord, allowed map[string][]string) *siteCode {
	policies := strings.Join(row.Policies, "\n")
	capabilities, ok := allowed[policies]
	if !ok {
		capabilities = c.cfg.LocalCapabilities(view, row.Policies)
		allowed[policies] = capabilities
	}
	return &siteCode{created: row.CreateIndex, delivered: syncproto.DeliveredSiteCode{
		ID: row.ID, ModifyIndex: row.ModifyIndex, Name: row.Name, Capabilities: capabilities,
		Salt: row.Hash.Salt, Hash: row.Hash.Hash, Rounds: row.Hash.Rounds, Expires: row.ExpirationTime.Unix(),
	}}
}

// collectCodes returns the codes for a place from the groups that take it. c.mu is held.
func (c *siteCodeCache) collectCodes(place codePlace) wantedCodes {
	var found []*siteCode
	var wanted wantedCodes
	for _, groups := range [][]*siteCodeGroup{c.bySite[place.site], c.globs} {
		for _, g := range groups {
			if g.first.IsFor(place.site, place.pool) {
				found = append(found, g.codes...)
				wanted.count += g.count
			}
		}
	}
	if len(found) > syncproto.MaxSiteCodes {
		slices.SortFunc(found, func(a, b *siteCode) int { return cmp.Compare(a.created, b.created) })
		found = found[:syncproto.MaxSiteCodes]
	}
	wanted.codes = make(map[string]*syncproto.DeliveredSiteCode, len(found))
	for _, code := range found {
		wanted.codes[code.delivered.ID] = &code.delivered
	}
	return wanted
}
