package consul

// DecodeAnswers decodes the answer of each question, and returns the attributes.
func DecodeAnswers(b []byte) map[string]string {
	_, _ = decodeServices(b)
	_, _ = decodeChecks(b)
	attributes, _ := decodeSelf(b)
	return attributes
}
