package fleet

// ACLPolicy is a policy of access control as it is stored: package fleet/acl reads its Rules.
type ACLPolicy struct {
	Name        string
	Description string
	Rules       string // HCL or JSON
	CreateIndex Index
	ModifyIndex Index
}
