package login_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/login"
)

func oidcMethod(issuer string) fleet.ACLAuthMethod {
	return fleet.ACLAuthMethod{
		Name: "sso", Type: fleet.ACLAuthMethodOIDC, TokenLocality: "global", MaxTokenTTL: fleet.TextDuration(time.Hour),
		Config: &fleet.ACLAuthMethodConfig{
			OIDCDiscoveryURL: issuer, OIDCClientID: "skerry", OIDCClientSecret: "client s3cret", OIDCScopes: []string{"groups"}, SigningAlgs: []string{"ES256"},
			AllowedRedirectURIs: []string{"http://localhost:4649/oidc/callback"}, ClaimMappings: map[string]string{"sub": "user"}, ListClaimMappings: map[string]string{"groups": "groups"},
		},
	}
}

func TestCheckMethod(t *testing.T) {
	many := make([]string, 65)
	for name, tc := range map[string]struct {
		change func(*fleet.ACLAuthMethod)
		part   string
	}{
		"name":                {func(m *fleet.ACLAuthMethod) { m.Name = "a b" }, "letters, digits and dashes"},
		"type":                {func(m *fleet.ACLAuthMethod) { m.Type = "LDAP" }, `its type is "LDAP"`},
		"locality":            {func(m *fleet.ACLAuthMethod) { m.TokenLocality = "" }, "token locality"},
		"ttl":                 {func(m *fleet.ACLAuthMethod) { m.MaxTokenTTL = 1 }, "MaxTokenTTL: a token cannot end after 1ns"},
		"no ttl":              {func(m *fleet.ACLAuthMethod) { m.MaxTokenTTL = 0 }, "MaxTokenTTL"},
		"no config":           {func(m *fleet.ACLAuthMethod) { m.Config = nil }, "it has no configuration"},
		"long format":         {func(m *fleet.ACLAuthMethod) { m.TokenNameFormat = strings.Repeat("x", 513) }, "513 bytes"},
		"format":              {func(m *fleet.ACLAuthMethod) { m.TokenNameFormat = "${value.mail}" }, "${value.mail} is unknown"},
		"open format":         {func(m *fleet.ACLAuthMethod) { m.TokenNameFormat = "${value.user" }, "has no end"},
		"algorithm none":      {func(m *fleet.ACLAuthMethod) { m.Config.SigningAlgs = []string{"none"} }, `the algorithm "none"`},
		"algorithm HS256":     {func(m *fleet.ACLAuthMethod) { m.Config.SigningAlgs = []string{"ES256", "HS256"} }, `the algorithm "HS256"`},
		"key":                 {func(m *fleet.ACLAuthMethod) { m.Config.JWTValidationPubKeys = []string{"x"} }, "key 1 cannot be read"},
		"CA":                  {func(m *fleet.ACLAuthMethod) { m.Config.JWKSCACert = "x" }, "not a certificate"},
		"two sources":         {func(m *fleet.ACLAuthMethod) { m.Config.JWKSURL = "https://ci.example.com" }, "and has 2"},
		"no source":           {func(m *fleet.ACLAuthMethod) { m.Config.JWTValidationPubKeys = nil }, "and has 0"},
		"plain HTTP":          {func(m *fleet.ACLAuthMethod) { m.Config.JWKSURL = "http://ci.example.com/keys" }, "plain HTTP"},
		"no URL":              {func(m *fleet.ACLAuthMethod) { m.Config.JWKSURL = "file:///etc/passwd" }, "is not a URL"},
		"many":                {func(m *fleet.ACLAuthMethod) { m.Config.BoundIssuer = many }, "BoundIssuer has 65 items"},
		"long":                {func(m *fleet.ACLAuthMethod) { m.Config.BoundAudiences = []string{strings.Repeat("x", 8193)} }, "BoundAudiences has more than"},
		"target":              {func(m *fleet.ACLAuthMethod) { m.Config.ClaimMappings["x"] = "a b" }, `mapped to "a b"`},
		"source":              {func(m *fleet.ACLAuthMethod) { m.Config.ListClaimMappings[""] = "a" }, "names no claim"},
		"two of one name":     {func(m *fleet.ACLAuthMethod) { m.Config.ClaimMappings["x"] = "user" }, `two claims are mapped to "user"`},
		"OIDC in JWT":         {func(m *fleet.ACLAuthMethod) { m.Config.OIDCClientSecret = "x" }, "are of the type OIDC"},
		"OIDC without client": {func(m *fleet.ACLAuthMethod) { *m = oidcMethod("https://sso.example.com"); m.Config.OIDCClientID = "" }, "no OIDCClientID"},
		"OIDC without URL":    {func(m *fleet.ACLAuthMethod) { *m = oidcMethod("") }, "no OIDCDiscoveryURL"},
		"OIDC, no redirect": {func(m *fleet.ACLAuthMethod) {
			*m = oidcMethod("https://sso.example.com")
			m.Config.AllowedRedirectURIs = nil
		}, "no AllowedRedirectURIs"},
		"JWT in OIDC": {func(m *fleet.ACLAuthMethod) {
			*m = oidcMethod("https://sso.example.com")
			m.Config.JWKSURL = "https://x.example.com"
		}, "are of the type JWT"},
	} {
		t.Run(name, func(t *testing.T) {
			m := jwtMethod()
			if err := login.CheckMethod(&m); err != nil {
				t.Fatal(err)
			}
			tc.change(&m)
			mustFailWith(t, login.CheckMethod(&m), fleet.CodeInvalid, tc.part)
		})
	}
	good := oidcMethod("http://127.0.0.1:8080")
	if err := login.CheckMethod(&good); err != nil {
		t.Error(err)
	}
}

func TestCheckRule(t *testing.T) {
	for _, tc := range []struct {
		rule fleet.ACLBindingRule
		part string // "": it is good
	}{
		{fleet.ACLBindingRule{AuthMethod: "ci", BindType: "management"}, ""},
		{fleet.ACLBindingRule{AuthMethod: "ci", BindType: "role", BindName: "a-${value.team}", Selector: `"x" in list.groups and value.user matches "^a"`}, ""},
		{fleet.ACLBindingRule{BindType: "management"}, "names no auth method"},
		{fleet.ACLBindingRule{AuthMethod: "ci"}, `its bind type is ""`},
		{fleet.ACLBindingRule{AuthMethod: "ci", BindType: "management", BindName: "x"}, "no bind name"},
		{fleet.ACLBindingRule{AuthMethod: "ci", BindType: "role"}, "bind name: it is empty"},
		{fleet.ACLBindingRule{AuthMethod: "ci", BindType: "role", BindName: "${list.groups}"}, "${list.groups} is unknown"},
		{fleet.ACLBindingRule{AuthMethod: "ci", BindType: "policy", BindName: "a${value.b"}, "has no end"},
		{fleet.ACLBindingRule{AuthMethod: "ci", BindType: "policy", BindName: strings.Repeat("x", 513)}, "513 bytes"},
		{fleet.ACLBindingRule{AuthMethod: "ci", BindType: "management", Description: strings.Repeat("x", 257)}, "257 bytes"},
		{fleet.ACLBindingRule{AuthMethod: "ci", BindType: "management", Selector: "value.user ="}, "its selector cannot be read"},
		{fleet.ACLBindingRule{AuthMethod: "ci", BindType: "management", Selector: strings.Repeat("x", 4097)}, "4097 bytes"},
	} {
		err := login.CheckRule(&tc.rule)
		if tc.part != "" {
			mustFailWith(t, err, fleet.CodeInvalid, tc.part)
		} else if err != nil {
			t.Errorf("%+v: %v", tc.rule, err)
		}
	}
}

func TestExpandTemplate(t *testing.T) {
	values := map[string]string{"value.a": "A", "value.b": "${value.a}"}
	for text, want := range map[string]string{
		"": "", "x": "x", "${value.a}": "A", "x${ value.a }y${value.b}": "xAy${value.a}", "$${value.a}": "${value.a}", "$$${value.a}": "$${value.a}", "$a$": "$a$", "}": "}",
	} {
		if got, err := login.ExpandTemplate(text, values); err != nil || got != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for text, part := range map[string]string{"${": "has no end", "x${value.a": "has no end", "${value.c}": "is unknown", "${}": "is unknown", "${upper(value.a)}": "is unknown"} {
		_, err := login.ExpandTemplate(text, values)
		mustFailWith(t, err, fleet.CodeInvalid, part)
	}
}

func TestFindClaim(t *testing.T) {
	var all map[string]any
	if err := json.Unmarshal([]byte(`{"a": {"b": [{"c": "deep"}], "x/y": "slash", "m~n": "tilde"}, "/a": "literal", "a/b": "flat"}`), &all); err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]any{
		"/a/b/0/c": "deep", "/a/x~1y": "slash", "/a/m~0n": "tilde", "a/b": "flat", "/a/b/1": nil, "/a/b/-1": nil, "/a/b/x": nil, "/a/b/0/c/d": nil, "none": nil, "/none/x": nil,
	} {
		if got := login.FindClaim(all, source); got != want {
			t.Errorf("%s: %v", source, got)
		}
	}
}

// FuzzTemplate: what is expanded without values is the text itself, or an error.
func FuzzTemplate(f *testing.F) {
	for _, text := range []string{"", "a", "${value.a}", "$${x}", "${", "$${${value.a}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := login.ExpandTemplate(text, map[string]string{"value.a": "A"})
		if !strings.Contains(text, "${") && (err != nil || got != text) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
		rule := fleet.ACLBindingRule{AuthMethod: "ci", BindType: "policy", BindName: text, Selector: text}
		_ = login.CheckRule(&rule)
	})
}
