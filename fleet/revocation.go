package fleet

// Revocation expels an edge for good. Its certificates are refused from then on, also
// where they are valid; the machine can only come back as another node, with a new
// key, a new node id and a join token.
type Revocation struct {
	NodeID  NodeID
	Name    string   // that the node had
	Serials []string // of the certificates that it had, in base 16
	Reason  string   `json:",omitempty"`
	Time    int64    // UnixNano, hub's clock

	CreateIndex Index
}
