package aclpolicy

import (
	"cmp"

	"skerry/fleet"
	"skerry/fleet/acl"
)

// Check returns what is wrong with a policy that a user stores.
func Check(p *fleet.ACLPolicy) error {
	if err := cmp.Or(acl.CheckNamed("ACL policy", p.Name, p.Description), checkJobACL(p)); err != nil {
		return err
	}
	if _, err := Parse(p.Rules); err != nil {
		e := fleet.AsError(err)
		return fleet.Errorf(e.Code, "store ACL policy %q: %s", p.Name, e.Message).WithHint("%s", e.Hint)
	}
	return nil
}

// checkJobACL returns what is wrong with the attachment of a policy to a job.
func checkJobACL(p *fleet.ACLPolicy) error {
	at := p.JobACL
	if at == nil {
		return nil
	}
	missing := ""
	switch {
	case at.Namespace == "":
		missing = "a namespace"
	case at.JobID == "":
		missing = "a job"
	case at.Task != "" && at.Group == "":
		missing = "a group beside its task"
	default:
		return nil
	}
	return fleet.Errorf(fleet.CodeInvalid, "store ACL policy %q: its JobACL does not name %s", p.Name, missing).
		WithHint("a policy is attached to a job of a namespace, to a group of it, or to a task of a group")
}
