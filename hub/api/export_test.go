package api

// These functions are tested by themselves.
var (
	ExecFrames   = execFrames
	CloseText    = closeText
	IsIgnoredKey = isIgnored
	WhyFixed     = whyFixed
)

// RefuseUnknownKeys refuses keys for which a type has no field, as the endpoints do.
func RefuseUnknownKeys(b []byte, v any) error {
	keys, err := readBodyKeys(b, v)
	if err != nil {
		return err
	}
	return keys.refuseUnknown()
}
