//go:build !unix

package local

import "skerry/fleet"

// Share returns an error: the system has no groups of unix users.
func Share(_, group string) error {
	return fleet.Errorf(fleet.CodeUnsupported, "share the local API with group %q: this system has no unix groups", group)
}
