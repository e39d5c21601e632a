package fleet

// ACLRole is a name for policies that belong together. A token with the role has what all of them allow.
type ACLRole struct {
	ID          string // a UUID
	Name        string // unique
	Description string
	Policies    []ACLRolePolicy
	CreateIndex Index
	ModifyIndex Index
}

// ACLRolePolicy names a policy of a role.
type ACLRolePolicy struct{ Name string }
