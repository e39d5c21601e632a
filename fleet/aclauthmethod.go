package fleet

import (
	"encoding/json"
	"fmt"
	"time"
)

// Types of an ACLAuthMethod.
const (
	ACLAuthMethodJWT  = "JWT"
	ACLAuthMethodOIDC = "OIDC"
)

// Types of an ACLBindingRule.
const (
	ACLBindRole       = "role"
	ACLBindPolicy     = "policy"
	ACLBindManagement = "management"
)

// ACLAuthMethod says whose tokens or logins are exchanged for a token of this cluster, and how long that one is valid.
type ACLAuthMethod struct {
	Name            string
	Type            string
	TokenLocality   string // Nomad's: "local" or "global". A cluster is one region here
	TokenNameFormat string // with ${auth_method_type}, ${auth_method_name} and ${value.NAME}
	MaxTokenTTL     TextDuration
	Default         bool // of its type
	Config          *ACLAuthMethodConfig
	CreateTime      time.Time
	ModifyTime      time.Time
	CreateIndex     Index
	ModifyIndex     Index
}

// ACLAuthMethodConfig says how a login is checked. The keys of a JWT come from one of JWTValidationPubKeys (PEM), JWKSURL
// and OIDCDiscoveryURL; OIDC needs OIDCDiscoveryURL.
type ACLAuthMethodConfig struct {
	JWTValidationPubKeys []string
	JWKSURL              string
	JWKSCACert           string // PEM
	OIDCDiscoveryURL     string
	DiscoveryCaPem       []string
	OIDCClientID         string
	OIDCClientSecret     string // shown as RedactedSecret; the hubs keep it encrypted
	OIDCEnablePKCE       bool
	OIDCDisableUserInfo  bool
	OIDCScopes           []string
	BoundAudiences       []string
	BoundIssuer          []string
	AllowedRedirectURIs  []string
	SigningAlgs          []string // none: RS256
	// Leeways for clocks that differ. 0 is 150 s for ExpirationLeeway and NotBeforeLeeway, which count for tokens without
	// these claims, and 60 s for ClockSkewLeeway; negative is none.
	ExpirationLeeway TextDuration
	NotBeforeLeeway  TextDuration
	ClockSkewLeeway  TextDuration
	// ClaimMappings and ListClaimMappings name the claims that rules see, as value.NAME and list.NAME. A key that begins
	// with a slash is a JSON pointer.
	ClaimMappings     map[string]string
	ListClaimMappings map[string]string
	VerboseLogging    bool // log the mapped claims and the rules that matched, at level debug
}

// RedactedSecret stands for a secret in answers. In a request it means that the secret stays.
const RedactedSecret = "redacted"

// ACLBindingRule says what somebody gets who logs in by an auth method and whose claims match Selector.
type ACLBindingRule struct {
	ID          string // a UUID
	Description string
	AuthMethod  string
	Selector    string // of go-bexpr, on value and list; "": everybody
	BindType    string
	BindName    string // of the role or policy, with ${value.NAME}
	CreateTime  time.Time
	ModifyTime  time.Time
	CreateIndex Index
	ModifyIndex Index
}

// TextDuration is a time span that JSON has as text such as "8h", as Nomad's auth methods do. Nanoseconds are read, too.
type TextDuration time.Duration

// String returns the text.
func (d TextDuration) String() string { return time.Duration(d).String() }

// MarshalJSON writes the text; "" for none.
func (d TextDuration) MarshalJSON() ([]byte, error) {
	if d == 0 {
		return []byte(`""`), nil
	}
	return json.Marshal(d.String())
}

// UnmarshalJSON reads a text or nanoseconds.
func (d *TextDuration) UnmarshalJSON(data []byte) error {
	var nanoseconds int64
	if json.Unmarshal(data, &nanoseconds) == nil {
		*d = TextDuration(nanoseconds)
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("read a duration: %s is neither a text such as \"8h\" nor a number of nanoseconds", data)
	}
	if text == "" {
		*d = 0
		return nil
	}
	span, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("read a duration: %w", err)
	}
	*d = TextDuration(span)
	return nil
}
