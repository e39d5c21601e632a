package templates

// ParseEnv reads lines NAME=VALUE.
var ParseEnv = parseEnv

// DecodeRendering reads a rendering from the disk.
func DecodeRendering(text []byte) error {
	_, err := decodeRendering(text)
	return err
}
