package fleet

// Roles that a certificate is given for, and that a join token admits. The common name
// of a certificate is "edge:NODEID" or "hub:NAME".
const (
	RoleHub  = "hub"
	RoleEdge = "edge"
)
