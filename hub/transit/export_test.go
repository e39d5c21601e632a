package transit

// DecodeAnswer is decodeAnswer.
func DecodeAnswer(content []byte) (answer, error) { return decodeAnswer(content) }
