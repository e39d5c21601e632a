package members

// DecodeMember is what the fuzz test drives: the one decoder of others' bytes.
func DecodeMember(b []byte) (Member, bool, error) { return decodeMember(b) }

// GossipKeys returns the keys in use, the one to encrypt with first.
func (m *Members) GossipKeys() [][]byte { return m.keys.GetKeys() }
