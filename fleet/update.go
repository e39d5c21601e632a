package fleet

import (
	"strconv"
	"strings"
	"time"
)

// When a rollout counts as complete; else Update.WaitFor is a percentage ("95%").
const (
	WaitForReachable = "reachable"
	WaitForAll       = "all"
)

// Update says how a new version is rolled out. With a MaxParallel of 0 everything is
// replaced at once and there is no deployment.
type Update struct {
	Stagger          time.Duration
	MaxParallel      int
	HealthCheck      string
	MinHealthyTime   time.Duration
	HealthyDeadline  time.Duration
	ProgressDeadline time.Duration // 0: the first failure ends the rollout
	AutoRevert       bool
	AutoPromote      bool
	Canary           int // a count; for system jobs a percentage of the nodes

	// MaxUnavailablePerSite bounds how many of the group's allocations at one site may
	// be out of service for the rollout at once; 0 is no bound.
	MaxUnavailablePerSite int `json:",omitempty"`
	// Windows are when allocations may be replaced; none: at any time. The hub and the
	// edge itself hold to them.
	Windows []UpdateWindow `json:",omitempty"`
	// WaitFor says when the rollout is complete, counted in allocations that ought to
	// run: those on edges that can be reached (WaitForReachable, the default), all, or
	// a percentage.
	WaitFor string `json:",omitempty"`
}

// SiteTimeZone is what a window's time zone may say for that of the site, which it is
// where it says nothing.
const SiteTimeZone = "site"

// UpdateWindow opens whenever Cron fires, for Duration, in the time zone of the site
// (that of the node that an allocation runs on) or in TimeZone.
type UpdateWindow struct {
	Cron     string
	Duration time.Duration
	TimeZone string `json:",omitempty"`
}

// DefaultUpdate returns how new versions of a job type are rolled out where a job file
// says nothing; nil for types that have no rollouts.
func DefaultUpdate(jobType string) *Update {
	if jobType != JobTypeService && jobType != JobTypeSystem {
		return nil
	}
	return &Update{
		Stagger: 30 * time.Second, MaxParallel: 1, HealthCheck: HealthChecks, MinHealthyTime: 10 * time.Second,
		HealthyDeadline: 5 * time.Minute, ProgressDeadline: 10 * time.Minute, WaitFor: WaitForReachable,
	}
}

// Rolling reports whether new versions come step by step, with a deployment.
func (u *Update) Rolling() bool { return u != nil && u.MaxParallel > 0 }

// WaitShare returns the share of a group's allocations, in percent, that must be
// healthy for a rollout to be complete, and whether those on edges that cannot be
// reached are left out of the count. False where WaitFor is none of what it may be.
func (u Update) WaitShare() (percent float64, reachableOnly, ok bool) {
	switch u.WaitFor {
	case "", WaitForReachable:
		return 100, true, true
	case WaitForAll:
		return 100, false, true
	}
	number, isPercent := strings.CutSuffix(u.WaitFor, "%")
	percent, err := strconv.ParseFloat(number, 64)
	if !isPercent || err != nil || !(percent > 0 && percent <= 100) {
		return 0, false, false
	}
	return percent, false, true
}
