package acl

import (
	"regexp"
	"slices"
	"time"

	"skerry/fleet"
)

// Bounds of policies, roles and tokens.
const (
	maxDescription = 256 // bytes
	maxTokenName   = 256 // bytes
	minTokenTTL    = time.Minute
	maxTokenTTL    = 10 * 365 * 24 * time.Hour
)

var (
	validName = regexp.MustCompile(`^[a-zA-Z0-9-]{1,128}$`)
	validUUID = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
)

// IsName tells whether a text can be the name of a policy, a role or an auth method.
func IsName(s string) bool { return validName.MatchString(s) }

// IsUUID tells whether a text is a UUID, as accessors, secrets and ids of roles are.
func IsUUID(s string) bool { return validUUID.MatchString(s) }

// CheckRole returns what is wrong with a role that a user stores.
func CheckRole(r *fleet.ACLRole) error {
	if err := CheckNamed("ACL role", r.Name, r.Description); err != nil {
		return err
	}
	if len(r.Policies) == 0 {
		return fleet.Errorf(fleet.CodeInvalid, "store ACL role %q: it has no policy", r.Name)
	}
	return nil
}

// CheckToken returns what is wrong with a token that a user stores.
func CheckToken(t *fleet.ACLToken) error {
	invalid := func(format string, args ...any) error {
		return fleet.Errorf(fleet.CodeInvalid, "store ACL token %q: "+format, append([]any{t.Name}, args...)...)
	}
	switch {
	case len(t.Name) > maxTokenName:
		return fleet.Errorf(fleet.CodeInvalid, "store ACL token: its name has %d bytes: at most %d are allowed", len(t.Name), maxTokenName)
	case t.Type != fleet.ACLTokenClient && t.Type != fleet.ACLTokenManagement:
		return invalid("its type is %q, neither %q nor %q", t.Type, fleet.ACLTokenClient, fleet.ACLTokenManagement)
	case t.Type == fleet.ACLTokenClient && len(t.Policies)+len(t.Roles) == 0:
		return invalid("a client token needs a policy or a role")
	case t.Type == fleet.ACLTokenManagement && len(t.Policies)+len(t.Roles) > 0:
		return invalid("a management token has neither policies nor roles: it may do everything")
	case slices.ContainsFunc(t.Policies, func(name string) bool { return !validName.MatchString(name) }):
		return invalid("the name of a policy has letters, digits and dashes, at most 128")
	}
	return nil
}

// CheckTokenTTL returns what is wrong with the time after which a token ends.
func CheckTokenTTL(ttl time.Duration) error {
	if ttl < minTokenTTL || ttl > maxTokenTTL {
		return fleet.Errorf(fleet.CodeInvalid, "store ACL token: it cannot end after %s: at least %s, at most %s", ttl, minTokenTTL, maxTokenTTL)
	}
	return nil
}

// CheckNamed returns what is wrong with the name and the description of a policy or a role.
func CheckNamed(what, name, description string) error {
	if !validName.MatchString(name) {
		return fleet.Errorf(fleet.CodeInvalid, "store %s %q: the name has letters, digits and dashes, at most 128", what, name)
	}
	if len(description) > maxDescription {
		return fleet.Errorf(fleet.CodeInvalid, "store %s %q: the description has %d bytes: at most %d are allowed", what, name, len(description), maxDescription)
	}
	return nil
}
