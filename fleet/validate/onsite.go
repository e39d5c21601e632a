package validate

import (
	"fmt"
	"slices"
	"strings"

	"skerry/fleet"
)

// validateLocalControl checks the local_control block of a group.
func validateLocalControl(c *fleet.LocalControl, ps *fleet.Problems, path string) {
	if c == nil {
		return
	}
	for i, action := range c.Allow {
		switch {
		case !slices.Contains(fleet.LocalActions, action):
			ps.AddHint(fmt.Sprintf("%s.Allow[%d]", path, i), "the actions are "+strings.Join(fleet.LocalActions, ", "), "unknown action %q", action)
		case slices.Contains(c.Allow[:i], action):
			ps.Add(fmt.Sprintf("%s.Allow[%d]", path, i), "%s is there twice", action)
		}
	}
	if c.Until != "" {
		checkOneOf(ps, path+".Until", "it is released or next_version", "unknown end of a stop on site", c.Until,
			fleet.HoldUntilReleased, fleet.HoldUntilNextVersion)
	}
}
