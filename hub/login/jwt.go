package login

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"skerry/fleet"
	"skerry/fleet/syntax"
)

// Bounds of a JWT.
const (
	MaxJWT     = 64 << 10 // bytes
	maxNesting = 32       // levels of the JSON in it
)

// Leeways where an auth method has none: for tokens without the claims exp and nbf, and for clocks that differ.
const (
	defaultLeeway    = 150 * time.Second
	defaultClockSkew = 60 * time.Second
)

// signingAlgs are the algorithms that an auth method may allow. Those with a shared secret, and none, are not among them.
var signingAlgs = []string{"RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "EdDSA"}

// refuse returns the error for a JWT that is not good for a login.
func refuse(format string, args ...any) *fleet.Error {
	return fleet.Errorf(fleet.CodeForbidden, "the token is refused: "+format, args...)
}

// verifyJWT returns the claims of a JWT after it has checked its signature, issuer, audience and times.
func (l *Logins) verifyJWT(ctx context.Context, conf *fleet.ACLAuthMethodConfig, raw string) (map[string]any, error) {
	signed, err := parseJWT(raw, allowedAlgs(conf))
	if err != nil {
		return nil, err
	}
	keys, err := l.keysFor(ctx, conf, signed.Signatures[0].Header.KeyID)
	if err != nil {
		return nil, err
	}
	all, err := verifySignature(signed, keys)
	if err != nil {
		return nil, err
	}
	if err := checkClaims(conf, all, l.cfg.Now()); err != nil {
		return nil, err
	}
	return all, nil
}

// allowedAlgs returns the algorithms that an auth method allows.
func allowedAlgs(conf *fleet.ACLAuthMethodConfig) []jose.SignatureAlgorithm {
	var algs []jose.SignatureAlgorithm
	for _, alg := range conf.SigningAlgs {
		algs = append(algs, jose.SignatureAlgorithm(alg))
	}
	if len(algs) == 0 {
		algs = append(algs, jose.RS256)
	}
	return algs
}

// parseJWT reads a JWT, whose signature it does not check. It refuses one that is too large or nested too deep before
// anything else reads it.
func parseJWT(raw string, algs []jose.SignatureAlgorithm) (*jose.JSONWebSignature, error) {
	if raw == "" {
		return nil, fleet.Errorf(fleet.CodeInvalid, "there is no token")
	}
	if len(raw) > MaxJWT {
		return nil, refuse("it has %d bytes: at most %d are allowed", len(raw), MaxJWT)
	}
	parts := strings.Split(raw, ".")
	if len(parts) != 3 {
		return nil, refuse("it is not a signed JWT, which has three parts")
	}
	for _, part := range parts[:2] {
		plain, err := base64.RawURLEncoding.DecodeString(part)
		if err != nil {
			return nil, refuse("it is not a JWT: %w", err)
		}
		if syntax.JSONDepth(plain) > maxNesting {
			return nil, refuse("it is nested more than %d deep", maxNesting)
		}
		if part != parts[0] {
			continue
		}
		var header struct{ Alg string }
		if err := json.Unmarshal(plain, &header); err != nil {
			return nil, refuse("its header is not JSON: %w", err)
		}
		if alg := jose.SignatureAlgorithm(header.Alg); !slices.Contains(algs, alg) {
			return nil, refuse("it is signed with %q, and the auth method allows %v", header.Alg, algs)
		}
	}
	signed, err := jose.ParseSignedCompact(raw, algs)
	if err != nil {
		return nil, refuse("%w", err)
	}
	return signed, nil
}

// verifySignature returns the claims of a JWT that one of the keys has signed.
func verifySignature(signed *jose.JSONWebSignature, keys []crypto.PublicKey) (map[string]any, error) {
	for _, key := range keys {
		if payload, err := signed.Verify(key); err == nil {
			return decodeClaims(payload)
		}
	}
	return nil, refuse("none of the auth method's %d keys has signed it", len(keys)).
		WithHint("if the issuer has a new key: it is fetched after %s at the latest, and keys in the method are replaced by skerry acl auth-method update", retryInterval)
}

// decodeClaims reads the claims of a JWT.
func decodeClaims(payload []byte) (map[string]any, error) {
	if syntax.JSONDepth(payload) > maxNesting {
		return nil, refuse("it is nested more than %d deep", maxNesting)
	}
	dec := json.NewDecoder(bytes.NewReader(payload))
	dec.UseNumber()
	var all map[string]any
	if err := dec.Decode(&all); err != nil {
		return nil, refuse("its claims are not JSON: %w", err)
	}
	if all == nil || dec.More() {
		return nil, refuse("its claims are not one JSON object")
	}
	return all, nil
}

// checkClaims checks the issuer, the audience and the times of a JWT.
func checkClaims(conf *fleet.ACLAuthMethodConfig, all map[string]any, now time.Time) error {
	if issuer, _ := all["iss"].(string); len(conf.BoundIssuer) > 0 && !slices.Contains(conf.BoundIssuer, issuer) {
		return refuse("its issuer is %q, which the auth method does not allow", issuer)
	}
	if audience := textsOf(all["aud"]); len(conf.BoundAudiences) > 0 && !slices.ContainsFunc(audience, func(a string) bool { return slices.Contains(conf.BoundAudiences, a) }) {
		return refuse("its audience is %q, which the auth method does not allow", audience)
	}
	return checkTimes(conf, all, now)
}

// textsOf returns a claim that is a text or a list of texts.
func textsOf(claim any) []string {
	if text, ok := claim.(string); ok {
		return []string{text}
	}
	var texts []string
	items, _ := claim.([]any)
	for _, item := range items {
		if text, ok := item.(string); ok {
			texts = append(texts, text)
		}
	}
	return texts
}

// checkTimes checks that a JWT is valid now. One without the claim exp ends some time after iat or nbf, one without nbf
// begins with iat or some time before exp; without any of them it is refused.
func checkTimes(conf *fleet.ACLAuthMethodConfig, all map[string]any, now time.Time) error {
	var at [3]time.Time
	for i, name := range []string{"exp", "nbf", "iat"} {
		claim, there := all[name]
		if !there {
			continue
		}
		number, _ := claim.(json.Number)
		seconds, err := number.Float64()
		if err != nil || math.Abs(seconds) > 1<<40 {
			return refuse("its claim %s is not a time in seconds", name)
		}
		at[i] = time.Unix(int64(seconds), 0)
	}
	exp, nbf, iat := at[0], at[1], at[2]
	if exp.IsZero() && nbf.IsZero() && iat.IsZero() {
		return refuse("it has none of the claims exp, nbf and iat, so that it would never end")
	}
	if exp.IsZero() {
		exp = latest(nbf, iat).Add(leeway(conf.ExpirationLeeway, defaultLeeway))
	}
	if nbf.IsZero() {
		if nbf = iat; iat.IsZero() {
			nbf = exp.Add(-leeway(conf.NotBeforeLeeway, defaultLeeway))
		}
	}
	skew := leeway(conf.ClockSkewLeeway, defaultClockSkew)
	switch {
	case !now.Add(-skew).Before(exp):
		return refuse("it ended at %s", exp.UTC().Format(time.RFC3339)).WithHint("get a new one; if it is new, compare the clocks")
	case now.Add(skew).Before(nbf):
		return refuse("it begins at %s", nbf.UTC().Format(time.RFC3339)).WithHint("compare the clock of the hub with that of the issuer")
	}
	return nil
}

func latest(x, y time.Time) time.Time {
	if x.After(y) {
		return x
	}
	return y
}

// leeway returns a configured leeway: 0 stands for the default, and a negative one for none.
func leeway(configured fleet.TextDuration, otherwise time.Duration) time.Duration {
	return max(0, cmp.Or(time.Duration(configured), otherwise))
}

// errNotPublicKey says what a PEM text should have been.
var errNotPublicKey = errors.New("it is not the PEM text of a public key or a certificate")

// parsePublicKey reads a public key or a certificate.
func parsePublicKey(text string) (crypto.PublicKey, error) {
	block, rest := pem.Decode([]byte(text))
	if block == nil || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errNotPublicKey
	}
	switch block.Type {
	case "PUBLIC KEY":
		return x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		return cert.PublicKey, nil
	}
	return nil, errNotPublicKey
}
