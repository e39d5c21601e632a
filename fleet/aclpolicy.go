package fleet

// ACLPolicy is a policy of access control as it is stored: package fleet/acl reads its Rules.
type ACLPolicy struct {
	Name        string
	Description string
	Rules       string  // HCL or JSON
	JobACL      *JobACL `json:",omitempty"` // nil: it is for tokens alone
	CreateIndex Index
	ModifyIndex Index
}

// JobACL attaches a policy to the identities of a job's tasks, in Nomad's shape. Group "" stands for all groups, and
// Task "" for all tasks of the group.
type JobACL struct {
	Namespace string
	JobID     JobID
	Group     string
	Task      string
}

// AttachedTo reports whether the policy counts for the identities of a task.
func (p *ACLPolicy) AttachedTo(namespace string, job JobID, group, task string) bool {
	at := p.JobACL
	return at != nil && at.Namespace == namespace && at.JobID == job && (at.Group == "" || at.Group == group) && (at.Task == "" || at.Task == task)
}
