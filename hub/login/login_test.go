package login_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"skerry/fleet"
	"skerry/hub/login"
	"skerry/hub/state"
)

// harness is a state with the Logins that read it.
type harness struct {
	tb    testing.TB
	store *state.Store
	index fleet.Index
	now   time.Time
	*login.Logins
}

func newHarness(tb testing.TB) *harness {
	h := &harness{tb: tb, store: state.New(), now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	h.Logins = login.New(login.Config{State: h.store, Wrap: reversing{}, Now: func() time.Time { return h.now }})
	h.mustApply(state.ACLPolicyStore{Policy: fleet.ACLPolicy{Name: "read", Rules: `node { policy = "read" }`}})
	h.mustApply(state.ACLPolicyStore{Policy: fleet.ACLPolicy{Name: "team-blue", Rules: `node { policy = "read" }`}})
	h.mustApply(state.ACLPolicyStore{Policy: fleet.ACLPolicy{Name: "unnamed", Rules: `node { policy = "read" }`}})
	h.mustApply(state.ACLRoleStore{Role: fleet.ACLRole{ID: "r1", Name: "engineers", Policies: []fleet.ACLRolePolicy{{Name: "read"}}}})
	return h
}

// reversing is a Wrapper that writes secrets backwards.
type reversing struct{}

func (reversing) Wrap(plain, bound []byte) ([]byte, string, error) {
	wrapped := slices.Concat(bound, []byte{0}, plain)
	slices.Reverse(wrapped)
	return wrapped, "key", nil
}

func (reversing) Unwrap(by string, wrapped, bound []byte) ([]byte, error) {
	plain := slices.Clone(wrapped)
	slices.Reverse(plain)
	plain, ok := bytes.CutPrefix(plain, append(bound, 0))
	if !ok || by != "key" {
		return nil, errors.New("another key, or bound to something else")
	}
	return plain, nil
}

func (h *harness) mustApply(cmd state.Command) {
	h.tb.Helper()
	h.index++
	if res := h.store.Apply(h.index, cmd); res.Err != nil {
		h.tb.Fatalf("apply %T: %v", cmd, res.Err)
	}
}

// storeMethod checks and stores an auth method.
func (h *harness) storeMethod(m fleet.ACLAuthMethod) {
	h.tb.Helper()
	if err := login.CheckMethod(&m); err != nil {
		h.tb.Fatal(err)
	}
	row, err := h.SealClientSecret(m)
	if err != nil {
		h.tb.Fatal(err)
	}
	h.mustApply(state.ACLAuthMethodStore{Method: row})
}

// storeRules replaces the rules of a method by these: SELECTOR, bind type and bind name each.
func (h *harness) storeRules(method string, rules ...[3]string) {
	h.tb.Helper()
	var old []string
	for r := range h.store.View().ACLBindingRules() {
		old = append(old, r.ID)
	}
	if len(old) > 0 {
		h.mustApply(state.ACLAuthDelete{Rules: old})
	}
	for i, r := range rules {
		rule := fleet.ACLBindingRule{ID: fmt.Sprint("b", i), AuthMethod: method, Selector: r[0], BindType: r[1], BindName: r[2]}
		if err := login.CheckRule(&rule); err != nil {
			h.tb.Fatal(err)
		}
		h.mustApply(state.ACLBindingRuleStore{Rule: rule})
	}
}

var (
	ecKey  = sync.OnceValue(newECKey)
	rsaKey = sync.OnceValue(func() *rsa.PrivateKey {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err)
		}
		return key
	})
)

func newECKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
}

func publicPEM(key crypto.Signer) string {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		panic(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// signJWT returns a JWT of a payload; id "" leaves the key id out.
func signJWT(tb testing.TB, alg jose.SignatureAlgorithm, key any, id string, payload any) string {
	tb.Helper()
	text, isText := payload.(string)
	if !isText {
		b, err := json.Marshal(payload)
		if err != nil {
			tb.Fatal(err)
		}
		text = string(b)
	}
	if id != "" {
		key = jose.JSONWebKey{Key: key, KeyID: id}
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	signed, err := signer.Sign([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	raw, err := signed.CompactSerialize()
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

// jwtMethod is an auth method with the key ecKey.
func jwtMethod() fleet.ACLAuthMethod {
	return fleet.ACLAuthMethod{
		Name: "ci", Type: fleet.ACLAuthMethodJWT, TokenLocality: "global", MaxTokenTTL: fleet.TextDuration(time.Hour),
		Config: &fleet.ACLAuthMethodConfig{
			JWTValidationPubKeys: []string{publicPEM(newECKey()), publicPEM(ecKey())}, SigningAlgs: []string{"ES256"},
			BoundIssuer: []string{"https://ci.example.com"}, BoundAudiences: []string{"skerry", "other"},
			ClaimMappings: map[string]string{"sub": "user", "/org/team": "team"}, ListClaimMappings: map[string]string{"groups": "groups"},
		},
	}
}

// goodClaims are those that jwtMethod lets in, with changes; a nil value leaves a claim out.
func (h *harness) goodClaims(changes map[string]any) map[string]any {
	all := map[string]any{
		"iss": "https://ci.example.com", "aud": "skerry", "iat": h.now.Unix(), "exp": h.now.Add(time.Hour).Unix(), "sub": "Ann", "org": map[string]any{"team": "Blue"},
		"groups": []string{"dev", "ops"},
	}
	maps.Copy(all, changes)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	return all
}

func mustFailWith(tb testing.TB, err error, code fleet.Code, part string) {
	tb.Helper()
	if err == nil || fleet.CodeOf(err) != code || !strings.Contains(err.Error(), part) {
		tb.Errorf("error %v (%s), not %q (%s)", err, fleet.CodeOf(err), part, code)
	}
}

// A login gives what the matching rules say, for as long as the method says.
func TestLoginJWT(t *testing.T) {
	h := newHarness(t)
	h.storeMethod(jwtMethod())
	raw := signJWT(t, jose.ES256, ecKey(), "", h.goodClaims(nil))
	_, err := h.LoginJWT(t.Context(), "ci", raw)
	mustFailWith(t, err, fleet.CodeInvalid, "no role or policy bindings matched")
	h.storeRules("ci",
		[3]string{`"dev" in list.groups`, "policy", "read"},
		[3]string{`value.user == "Ann"`, "policy", "team-${ value.team }"},
		[3]string{``, "role", "engineers"},
		[3]string{``, "role", "engineers"},
		[3]string{``, "policy", "gone"},
		[3]string{`"boss" in list.groups`, "management", ""},
		[3]string{`value.absent == "x" or "x" in list.absent or value.absent matches ".*"`, "management", ""},
		[3]string{`value.absent != "x" and "x" not in list.absent`, "policy", "unnamed"},
	)
	h.mustApply(state.ACLAuthMethodStore{Method: state.ACLAuthMethodRecord{ACLAuthMethod: fleet.ACLAuthMethod{Name: "other", Type: fleet.ACLAuthMethodJWT, Config: jwtMethod().Config}}})
	h.mustApply(state.ACLBindingRuleStore{Rule: fleet.ACLBindingRule{ID: "foreign", AuthMethod: "other", BindType: fleet.ACLBindManagement}})
	token, err := h.LoginJWT(t.Context(), "ci", raw)
	if err != nil {
		t.Fatal(err)
	}
	if token.Type != fleet.ACLTokenClient || fmt.Sprint(token.Policies) != "[read team-blue unnamed]" || fmt.Sprint(token.Roles) != "[{r1 engineers}]" {
		t.Errorf("the token: %+v", token)
	}
	if token.Name != "JWT-ci" || !token.Global || !token.CreateTime.Equal(h.now) || !token.ExpirationTime.Equal(h.now.Add(time.Hour)) {
		t.Errorf("the token: %+v", token)
	}
	boss := signJWT(t, jose.ES256, ecKey(), "", h.goodClaims(map[string]any{"groups": "boss"}))
	if token, err = h.LoginJWT(t.Context(), "ci", boss); err != nil || token.Type != fleet.ACLTokenManagement || len(token.Policies)+len(token.Roles) > 0 || token.ExpirationTime == nil {
		t.Errorf("management: %+v, %v", token, err)
	}
	named := jwtMethod()
	named.TokenNameFormat, named.TokenLocality = "${auth_method_name}/${value.user}$${", "local"
	h.storeMethod(named)
	if token, err = h.LoginJWT(t.Context(), "ci", raw); err != nil || token.Name != "ci/Ann${" || token.Global {
		t.Errorf("with a format: %+v, %v", token, err)
	}
	_, err = h.LoginJWT(t.Context(), "ci", signJWT(t, jose.ES256, ecKey(), "", h.goodClaims(map[string]any{"org": nil})))
	mustFailWith(t, err, fleet.CodeForbidden, "${ value.team } is unknown")
	_, err = h.LoginJWT(t.Context(), "ci", signJWT(t, jose.ES256, ecKey(), "", h.goodClaims(map[string]any{"org": map[string]any{"team": "../x"}})))
	mustFailWith(t, err, fleet.CodeForbidden, "cannot be a name")
	_, err = h.LoginJWT(t.Context(), "ci", signJWT(t, jose.ES256, ecKey(), "", h.goodClaims(map[string]any{"sub": []string{"Ann"}})))
	mustFailWith(t, err, fleet.CodeForbidden, `the claim "sub" is neither a text`)
	_, err = h.LoginJWT(t.Context(), "ci", signJWT(t, jose.ES256, ecKey(), "", h.goodClaims(map[string]any{"groups": []any{map[string]any{}}})))
	mustFailWith(t, err, fleet.CodeForbidden, `an item of the claim "groups"`)
	for name, want := range map[string]fleet.Code{"": fleet.CodeInvalid, "none": fleet.CodeNotFound} {
		_, err = h.LoginJWT(t.Context(), name, raw)
		mustFailWith(t, err, want, "auth method")
	}
}

// unsigned returns a JWT with a header and a payload as they are, and a signature that says nothing.
func unsigned(header, payload string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".AAAA"
}

func TestBadTokens(t *testing.T) {
	h := newHarness(t)
	h.storeMethod(jwtMethod())
	h.storeRules("ci", [3]string{"", "management", ""})
	sign := func(changes map[string]any) string { return signJWT(t, jose.ES256, ecKey(), "", h.goodClaims(changes)) }
	good := sign(nil)
	if _, err := h.LoginJWT(t.Context(), "ci", good); err != nil {
		t.Fatal(err)
	}
	payload, _ := json.Marshal(h.goodClaims(nil))
	parts := strings.Split(good, ".")
	secret := []byte(publicPEM(ecKey()))
	deep := strings.Repeat("[", 33) + strings.Repeat("]", 33)
	for name, tc := range map[string]struct{ raw, part string }{
		"alg none":               {unsigned(`{"alg":"none"}`, string(payload)), `signed with "none"`},
		"no alg":                 {unsigned(`{}`, string(payload)), `signed with ""`},
		"alg none, no signature": {strings.TrimSuffix(unsigned(`{"alg":"none"}`, string(payload)), "AAAA"), `signed with "none"`},
		"the key as a secret":    {signJWT(t, jose.HS256, secret, "", string(payload)), `signed with "HS256"`},
		"algorithm not allowed":  {signJWT(t, jose.RS256, rsaKey(), "", string(payload)), `signed with "RS256", and the auth method allows [ES256]`},
		"key of somebody else":   {signJWT(t, jose.ES256, newECKey(), "", string(payload)), "none of the auth method's 2 keys"},
		"changed claims":         {parts[0] + "." + strings.Split(sign(map[string]any{"sub": "Eve"}), ".")[1] + "." + parts[2], "none of the auth method's 2 keys"},
		"a critical header":      {unsigned(`{"alg":"ES256","crit":["x"],"x":1}`, string(payload)), "the token is refused"},
		"wrong audience":         {sign(map[string]any{"aud": []string{"vault"}}), `its audience is ["vault"]`},
		"no audience":            {sign(map[string]any{"aud": nil}), `its audience is []`},
		"audience of numbers":    {sign(map[string]any{"aud": []any{1}}), `its audience is []`},
		"wrong issuer":           {sign(map[string]any{"iss": "https://ci.example.org"}), `its issuer is "https://ci.example.org"`},
		"no issuer":              {sign(map[string]any{"iss": nil}), `its issuer is ""`},
		"issuer is a list":       {sign(map[string]any{"iss": []string{"https://ci.example.com"}}), `its issuer is ""`},
		"expired":                {sign(map[string]any{"exp": h.now.Add(-time.Minute).Unix()}), "it ended at 2026-05-01T11:59:00Z"},
		"ends with text":         {sign(map[string]any{"exp": "never"}), "its claim exp is not a time"},
		"ends never":             {sign(map[string]any{"exp": 1e300}), "its claim exp is not a time"},
		"begins later":           {sign(map[string]any{"nbf": h.now.Add(time.Hour).Unix()}), "it begins at 2026-05-01T13:00:00Z"},
		"made later":             {sign(map[string]any{"iat": h.now.Add(time.Hour).Unix(), "exp": h.now.Add(2 * time.Hour).Unix()}), "it begins at"},
		"no times":               {sign(map[string]any{"exp": nil, "iat": nil}), "none of the claims exp, nbf and iat"},
		"huge":                   {sign(map[string]any{"x": strings.Repeat("x", login.MaxJWT)}), "bytes: at most 65536"},
		"nested claims":          {signJWT(t, jose.ES256, ecKey(), "", `{"exp":1,"x":`+deep+`}`), "nested more than 32 deep"},
		"nested header":          {unsigned(`{"alg":"ES256","x":`+deep+`}`, string(payload)), "nested more than 32 deep"},
		"claims are a list":      {signJWT(t, jose.ES256, ecKey(), "", `[1]`), "its claims are not JSON"},
		"claims are null":        {signJWT(t, jose.ES256, ecKey(), "", `null`), "not one JSON object"},
		"two objects":            {signJWT(t, jose.ES256, ecKey(), "", string(payload)+"{}"), "not one JSON object"},
		"claims no JSON":         {signJWT(t, jose.ES256, ecKey(), "", `{"a`), "its claims are not JSON"},
		"one part":               {"token", "three parts"},
		"encrypted":              {good + ".x.y", "three parts"},
		"no base64":              {"{}." + parts[1] + "." + parts[2], "it is not a JWT"},
		"header no JSON":         {unsigned(`x`, string(payload)), "its header is not JSON"},
		"signature no base64":    {parts[0] + "." + parts[1] + ".!", "the token is refused"},
	} {
		_, err := h.LoginJWT(t.Context(), "ci", tc.raw)
		if err == nil {
			t.Errorf("%s: it is let in", name)
			continue
		}
		mustFailWith(t, err, fleet.CodeForbidden, tc.part)
		if len(tc.raw) > 100 && strings.Contains(err.Error(), tc.raw[:100]) {
			t.Errorf("%s: the error has the token: %v", name, err)
		}
	}
	_, err := h.LoginJWT(t.Context(), "ci", "")
	mustFailWith(t, err, fleet.CodeInvalid, "there is no token")
}

// The leeways count as Nomad's: 0 is the default, a negative one none.
func TestLeeways(t *testing.T) {
	h := newHarness(t)
	at := func(d time.Duration) int64 { return h.now.Add(d).Unix() }
	for _, tc := range []struct {
		exp, nbf, skew time.Duration // of the method
		claims         map[string]any
		allowed        bool
	}{
		{0, 0, 0, map[string]any{"exp": at(-59 * time.Second)}, true},
		{0, 0, 0, map[string]any{"exp": at(-60 * time.Second)}, false},
		{0, 0, -1, map[string]any{"exp": at(time.Second)}, true},
		{0, 0, -1, map[string]any{"exp": at(0)}, false},
		{0, 0, time.Hour, map[string]any{"exp": at(-59 * time.Minute)}, true},
		{0, 0, 0, map[string]any{"exp": at(time.Hour), "nbf": at(60 * time.Second)}, true},
		{0, 0, 0, map[string]any{"exp": at(time.Hour), "nbf": at(61 * time.Second)}, false},
		{0, 0, -1, map[string]any{"exp": nil, "iat": at(-149 * time.Second)}, true},
		{0, 0, -1, map[string]any{"exp": nil, "iat": at(-150 * time.Second)}, false},
		{time.Hour, 0, -1, map[string]any{"exp": nil, "iat": at(-59 * time.Minute)}, true},
		{-1, 0, -1, map[string]any{"exp": nil, "iat": at(-time.Second)}, false},
		{0, 0, -1, map[string]any{"exp": nil, "nbf": at(-149 * time.Second), "iat": at(-time.Hour)}, true},
		{0, 0, -1, map[string]any{"iat": nil, "exp": at(149 * time.Second)}, true},
		{0, 0, -1, map[string]any{"iat": nil, "exp": at(151 * time.Second)}, false},
		{0, time.Hour, -1, map[string]any{"iat": nil, "exp": at(59 * time.Minute)}, true},
		{0, 0, 0, map[string]any{"iat": at(60 * time.Second)}, true},
		{0, 0, 0, map[string]any{"iat": at(61 * time.Second)}, false},
	} {
		m := jwtMethod()
		m.Config.ExpirationLeeway, m.Config.NotBeforeLeeway, m.Config.ClockSkewLeeway = fleet.TextDuration(tc.exp), fleet.TextDuration(tc.nbf), fleet.TextDuration(tc.skew)
		h.storeMethod(m)
		h.storeRules("ci", [3]string{"", "management", ""})
		_, err := h.LoginJWT(t.Context(), "ci", signJWT(t, jose.ES256, ecKey(), "", h.goodClaims(tc.claims)))
		if (err == nil) != tc.allowed {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

// Every algorithm that a method can allow works, and RS256 is the one of a method that names none.
func TestSigningAlgs(t *testing.T) {
	h := newHarness(t)
	m := jwtMethod()
	m.Config.SigningAlgs, m.Config.JWTValidationPubKeys = nil, []string{publicPEM(rsaKey()), publicPEM(ecKey())}
	h.storeMethod(m)
	h.storeRules("ci", [3]string{"", "management", ""})
	if _, err := h.LoginJWT(t.Context(), "ci", signJWT(t, jose.RS256, rsaKey(), "", h.goodClaims(nil))); err != nil {
		t.Errorf("RS256: %v", err)
	}
	_, err := h.LoginJWT(t.Context(), "ci", signJWT(t, jose.ES256, ecKey(), "", h.goodClaims(nil)))
	mustFailWith(t, err, fleet.CodeForbidden, "allows [RS256]")
	m.Config.SigningAlgs = []string{"PS512", "ES256"}
	h.storeMethod(m)
	for alg, key := range map[jose.SignatureAlgorithm]any{jose.PS512: rsaKey(), jose.ES256: ecKey()} {
		if _, err := h.LoginJWT(t.Context(), "ci", signJWT(t, alg, key, "", h.goodClaims(nil))); err != nil {
			t.Errorf("%s: %v", alg, err)
		}
	}
}

func TestTries(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	tries := login.NewTries(func() time.Time { return now })
	fail := func(source string, n int) {
		for range n {
			if !tries.Begin(source) {
				t.Fatalf("%s may not try", source)
			}
			tries.End(source, true)
		}
	}
	fail("192.0.2.1", login.MaxFailures)
	if tries.Begin("192.0.2.1") {
		t.Error("a source that failed often may try again")
	}
	fail("192.0.2.2", 1)
	fail("2001:db8::1", login.MaxFailures-1)
	fail("2001:db8::2", 1)
	if tries.Begin("2001:db8::3") {
		t.Error("another address of the same network may try")
	}
	fail("2001:db8:0:1::3", 1)
	now = now.Add(login.FailureWindow)
	fail("192.0.2.1", login.MaxFailures)
	if tries.Begin("192.0.2.1") {
		t.Error("failures of the second window do not count")
	}
	for range login.MaxFailures + 1 {
		if !tries.Begin("192.0.2.3") {
			t.Fatal("successes count as failures")
		}
		tries.End("192.0.2.3", false)
	}
	for range login.MaxAtOnce {
		if !tries.Begin("192.0.2.4") {
			t.Fatal("too few may try at once")
		}
	}
	if tries.Begin("192.0.2.5") {
		t.Error("too many may try at once")
	}
	tries.End("192.0.2.4", false)
	if !tries.Begin("192.0.2.5") {
		t.Error("nobody may try after one has ended")
	}
}
