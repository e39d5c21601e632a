package members

// DecodeMember is what the fuzz test drives: the one decoder of others' bytes.
func DecodeMember(b []byte) (Member, bool, error) { return decodeMember(b) }
