package login

// For tests of what reads input.
var (
	ParseJWT       = parseJWT
	DecodeClaims   = decodeClaims
	ParseKeys      = parseKeys
	ParsePublicKey = parsePublicKey
	ExpandTemplate = expandTemplate
	FindClaim      = findClaim
	OpenState      = (*Logins).openState
)

// Bounds that tests try.
const (
	MaxFailures   = maxFailures
	MaxAtOnce     = maxAtOnce
	FailureWindow = failureWindow
	FreshFor      = freshFor
	KeptFor       = keptFor
	RetryInterval = retryInterval
	MaxAnswer     = maxAnswer
	MaxKeys       = maxKeys
)
