package api

import "skerry/fleet"

// SiteCodeRequest creates a site code.
type SiteCodeRequest struct {
	Name     string   // of the person
	Site     string   // or a glob
	NodePool string   // or a glob; "": all
	Policies []string // whose blocks local say what it allows
	TTL      string   // a duration
}

// CreatedSiteCode is a new site code. Code is what the person types, which no later answer shows.
type CreatedSiteCode struct {
	fleet.SiteCode
	Code string
}
