package api

// What is tested by itself.
var (
	ExecFrames   = execFrames
	CloseText    = closeText
	IsIgnoredKey = isIgnored
	WhyFixed     = whyFixed
)

// RefuseUnknownKeys refuses what a type has no field for, as the endpoints do.
func RefuseUnknownKeys(b []byte, v any) error {
	keys, err := readBodyKeys(b, v)
	if err != nil {
		return err
	}
	return keys.refuseUnknown()
}
