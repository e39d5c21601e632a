package login

import (
	"crypto/x509"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"skerry/fleet"
	"skerry/fleet/acl"
)

// Bounds of what a user stores.
const (
	maxItems       = 64      // of each list and map
	maxItemBytes   = 8 << 10 // of each item
	maxDescription = 256     // bytes
	maxTemplate    = 512     // bytes
)

const (
	localityLocal  = "local"
	localityGlobal = "global"
)

// validTarget are the names that a claim can have for rules: bexpr reads them as parts of a selector.
var validTarget = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_/-]{0,63}$`)

// CheckMethod returns what is wrong with an auth method that a user stores.
func CheckMethod(m *fleet.ACLAuthMethod) error {
	invalid := func(format string, args ...any) error {
		return fleet.Errorf(fleet.CodeInvalid, "store ACL auth method %q: "+format, append([]any{m.Name}, args...)...)
	}
	switch {
	case !acl.IsName(m.Name):
		return invalid("the name has letters, digits and dashes, at most 128")
	case m.Type != fleet.ACLAuthMethodJWT && m.Type != fleet.ACLAuthMethodOIDC:
		return invalid("its type is %q, neither %s nor %s", m.Type, fleet.ACLAuthMethodJWT, fleet.ACLAuthMethodOIDC)
	case m.TokenLocality != localityLocal && m.TokenLocality != localityGlobal:
		return invalid("its token locality is %q, neither %q nor %q", m.TokenLocality, localityLocal, localityGlobal)
	case m.Config == nil:
		return invalid("it has no configuration")
	case len(m.TokenNameFormat) > maxTemplate:
		return invalid("its token name format has %d bytes: at most %d are allowed", len(m.TokenNameFormat), maxTemplate)
	}
	if err := acl.CheckTokenTTL(time.Duration(m.MaxTokenTTL)); err != nil {
		return invalid("MaxTokenTTL: a token cannot end after %s: at least a minute, at most ten years", m.MaxTokenTTL)
	}
	checkType := checkJWTConfig
	if m.Type == fleet.ACLAuthMethodOIDC {
		checkType = checkOIDCConfig
	}
	for _, check := range []func(*fleet.ACLAuthMethodConfig) error{checkBounds, checkKeys, checkMappings, checkType} {
		if err := check(m.Config); err != nil {
			e := fleet.AsError(err)
			return fleet.Errorf(fleet.CodeInvalid, "store ACL auth method %q: %s", m.Name, e.Message).WithHint("%s", e.Hint)
		}
	}
	if _, err := tokenName(m, claims{}); err != nil {
		return invalid("TokenNameFormat: %w", err)
	}
	return nil
}

func invalidConfig(format string, args ...any) *fleet.Error {
	return fleet.Errorf(fleet.CodeInvalid, format, args...)
}

// checkBounds checks the sizes of a configuration.
func checkBounds(c *fleet.ACLAuthMethodConfig) error {
	lists := map[string][]string{
		"JWTValidationPubKeys": c.JWTValidationPubKeys, "DiscoveryCaPem": c.DiscoveryCaPem, "OIDCScopes": c.OIDCScopes, "BoundAudiences": c.BoundAudiences,
		"BoundIssuer": c.BoundIssuer, "AllowedRedirectURIs": c.AllowedRedirectURIs, "SigningAlgs": c.SigningAlgs,
		"JWKSURL": {c.JWKSURL}, "OIDCDiscoveryURL": {c.OIDCDiscoveryURL}, "OIDCClientID": {c.OIDCClientID}, "OIDCClientSecret": {c.OIDCClientSecret},
		"ClaimMappings": slices.Collect(maps.Keys(c.ClaimMappings)), "ListClaimMappings": slices.Collect(maps.Keys(c.ListClaimMappings)),
	}
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		if len(lists[name]) > maxItems {
			return invalidConfig("%s has %d items: at most %d are allowed", name, len(lists[name]), maxItems)
		}
		if slices.ContainsFunc(lists[name], func(item string) bool { return len(item) > maxItemBytes }) {
			return invalidConfig("an item of %s has more than %d bytes", name, maxItemBytes)
		}
	}
	if len(c.JWKSCACert) > maxItems*maxItemBytes {
		return invalidConfig("JWKSCACert has more than %d bytes", maxItems*maxItemBytes)
	}
	return nil
}

// checkKeys checks the algorithms, keys, CAs and servers of a configuration.
func checkKeys(c *fleet.ACLAuthMethodConfig) error {
	for _, alg := range c.SigningAlgs {
		if !slices.Contains(signingAlgs, alg) {
			return invalidConfig("the algorithm %q in SigningAlgs is not one of %s", alg, strings.Join(signingAlgs, ", "))
		}
	}
	for i, text := range c.JWTValidationPubKeys {
		if _, err := parsePublicKey(text); err != nil {
			return invalidConfig("JWTValidationPubKeys: key %d cannot be read: %w", i+1, err)
		}
	}
	for _, cas := range append([]string{c.JWKSCACert}, c.DiscoveryCaPem...) {
		if cas != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(cas)) {
			return invalidConfig("JWKSCACert or DiscoveryCaPem is not a certificate (PEM)")
		}
	}
	for _, server := range []string{c.JWKSURL, c.OIDCDiscoveryURL} {
		if server == "" {
			continue
		}
		if err := checkURL(server); err != nil {
			return invalidConfig("%w", err).WithHint("use HTTPS")
		}
	}
	return nil
}

// checkMappings checks the names that claims have for rules.
func checkMappings(c *fleet.ACLAuthMethodConfig) error {
	for _, mappings := range []map[string]string{c.ClaimMappings, c.ListClaimMappings} {
		seen := map[string]bool{}
		for _, source := range slices.Sorted(maps.Keys(mappings)) {
			target := mappings[source]
			switch {
			case source == "":
				return invalidConfig("a mapping to %q names no claim", target)
			case !validTarget.MatchString(target):
				return invalidConfig("the claim %q is mapped to %q: a name begins with a letter and has letters, digits, '_', '-' and '/', at most 64", source, target)
			case seen[target]:
				return invalidConfig("two claims are mapped to %q", target)
			}
			seen[target] = true
		}
	}
	return nil
}

// checkJWTConfig checks a configuration of the type JWT.
func checkJWTConfig(c *fleet.ACLAuthMethodConfig) error {
	sources := 0
	for _, there := range []bool{len(c.JWTValidationPubKeys) > 0, c.JWKSURL != "", c.OIDCDiscoveryURL != ""} {
		if there {
			sources++
		}
	}
	switch {
	case sources != 1:
		return invalidConfig("it needs one of JWTValidationPubKeys, JWKSURL and OIDCDiscoveryURL, and has %d", sources)
	case c.OIDCClientID != "" || c.OIDCClientSecret != "" || c.OIDCEnablePKCE || len(c.OIDCScopes) > 0 || len(c.AllowedRedirectURIs) > 0:
		return invalidConfig("OIDCClientID, OIDCClientSecret, OIDCEnablePKCE, OIDCScopes and AllowedRedirectURIs are of the type %s", fleet.ACLAuthMethodOIDC)
	}
	return nil
}

// checkOIDCConfig checks a configuration of the type OIDC.
func checkOIDCConfig(c *fleet.ACLAuthMethodConfig) error {
	switch {
	case c.OIDCDiscoveryURL == "":
		return invalidConfig("it has no OIDCDiscoveryURL")
	case c.OIDCClientID == "":
		return invalidConfig("it has no OIDCClientID")
	case len(c.AllowedRedirectURIs) == 0:
		return invalidConfig("it has no AllowedRedirectURIs").WithHint("skerry login needs http://localhost:4649/oidc/callback")
	case len(c.JWTValidationPubKeys) > 0 || c.JWKSURL != "":
		return invalidConfig("JWTValidationPubKeys and JWKSURL are of the type %s: a provider names its keys", fleet.ACLAuthMethodJWT)
	}
	return nil
}

// CheckRule returns what is wrong with a binding rule that a user stores.
func CheckRule(r *fleet.ACLBindingRule) error {
	invalid := func(format string, args ...any) *fleet.Error {
		return fleet.Errorf(fleet.CodeInvalid, "store ACL binding rule: "+format, args...)
	}
	switch {
	case r.AuthMethod == "":
		return invalid("it names no auth method")
	case len(r.Description) > maxDescription:
		return invalid("the description has %d bytes: at most %d are allowed", len(r.Description), maxDescription)
	case len(r.BindName) > maxTemplate:
		return invalid("the bind name has %d bytes: at most %d are allowed", len(r.BindName), maxTemplate)
	}
	switch r.BindType {
	case fleet.ACLBindManagement:
		if r.BindName != "" {
			return invalid("a rule of the type management has no bind name")
		}
	case fleet.ACLBindRole, fleet.ACLBindPolicy:
		if err := checkTemplate(r.BindName); err != nil {
			return invalid("bind name: %w", err)
		}
	default:
		return invalid("its bind type is %q, and not role, policy or management", r.BindType)
	}
	if _, err := compileSelector(r.Selector); err != nil {
		e := fleet.AsError(err)
		return invalid("%s", e.Message).WithHint("%s", e.Hint)
	}
	return nil
}

// checkTemplate checks the ${…} of a bind name. Which claims are mapped is known when somebody logs in.
func checkTemplate(text string) error {
	if text == "" {
		return invalidConfig("it is empty")
	}
	values := map[string]string{}
	for _, part := range strings.Split(text, "${")[1:] {
		name, _, _ := strings.Cut(part, "}")
		if name = strings.TrimSpace(name); strings.HasPrefix(name, "value.") {
			values[name] = "x"
		}
	}
	_, err := expandTemplate(text, values)
	return err
}
