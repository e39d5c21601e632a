// Package loginstest signs JWTs as a hub does, and checks them as Vault and Consul do, for tests.
package loginstest

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"
)

// Issuer signs JWTs as a hub does, for tests without a hub.
type Issuer struct{ key *rsa.PrivateKey }

// NewIssuer makes an issuer with a key of its own.
func NewIssuer() *Issuer {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic("loginstest: no key can be made: " + err.Error())
	}
	return &Issuer{key}
}

// keySet is a JSON Web Key Set.
type keySet struct {
	Keys []webKey `json:"keys"`
}

type webKey struct {
	Kty string `json:"kty"`
	Kid string `json:"kid"`
	N   string `json:"n"`
	E   string `json:"e"`
}

// Keys returns the issuer's JSON Web Key Set.
func (i *Issuer) Keys() ([]byte, error) {
	return json.Marshal(keySet{[]webKey{{"RSA", "k1", encode(i.key.N.Bytes()), encode(big.NewInt(int64(i.key.E)).Bytes())}}})
}

// Sign returns a JWT for an audience that ends after ttl, with more claims.
func (i *Issuer) Sign(audience string, ttl time.Duration, more map[string]any) string {
	claims := map[string]any{"aud": audience, "iat": time.Now().Unix(), "nbf": time.Now().Unix(), "exp": time.Now().Add(ttl).Unix()}
	maps.Copy(claims, more)
	body, err := json.Marshal(claims)
	if err != nil {
		panic("loginstest: claims have no JSON: " + err.Error())
	}
	signed := encode([]byte(`{"alg":"RS256","kid":"k1","typ":"JWT"}`)) + "." + encode(body)
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, sum[:])
	if err != nil {
		panic("loginstest: the key does not sign: " + err.Error())
	}
	return signed + "." + encode(signature)
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// Check checks the signature of a JWT by a key set, its times, its audience, and claims that it must have. It returns its claims.
func Check(jwt string, keys []byte, audience string, bound map[string]string, now time.Time) (map[string]any, error) {
	parts := strings.Split(jwt, ".")
	if len(parts) != 3 {
		return nil, errors.New("it has not three parts")
	}
	var decoded [3][]byte
	for i, part := range parts {
		var err error
		if decoded[i], err = base64.RawURLEncoding.DecodeString(part); err != nil {
			return nil, fmt.Errorf("part %d: %w", i, err)
		}
	}
	var header struct{ Alg, Kid string }
	var set keySet
	claims := map[string]any{}
	if err := errors.Join(json.Unmarshal(decoded[0], &header), json.Unmarshal(decoded[1], &claims), json.Unmarshal(keys, &set)); err != nil {
		return nil, err
	}
	at := slices.IndexFunc(set.Keys, func(k webKey) bool { return k.Kid == header.Kid && k.Kty == "RSA" })
	if header.Alg != "RS256" || at < 0 {
		return nil, fmt.Errorf("no known key successfully validated the token signature")
	}
	n, err := base64.RawURLEncoding.DecodeString(set.Keys[at].N)
	if err != nil {
		return nil, err
	}
	e, err := base64.RawURLEncoding.DecodeString(set.Keys[at].E)
	if err != nil {
		return nil, err
	}
	public := &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(new(big.Int).SetBytes(e).Int64())}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err := rsa.VerifyPKCS1v15(public, crypto.SHA256, sum[:], decoded[2]); err != nil {
		return nil, errors.New("no known key successfully validated the token signature")
	}
	return claims, checkClaims(claims, audience, bound, now)
}

func checkClaims(claims map[string]any, audience string, bound map[string]string, now time.Time) error {
	end, ok := claims["exp"].(float64)
	if !ok || now.Unix() >= int64(end) {
		return errors.New("token is expired")
	}
	var named []string
	switch aud := claims["aud"].(type) {
	case string:
		named = []string{aud}
	case []any:
		for _, a := range aud {
			named = append(named, fmt.Sprint(a))
		}
	}
	if !slices.Contains(named, audience) {
		return errors.New("invalid audience (aud) claim: audience claim does not match any bound audience")
	}
	for name, want := range bound {
		if got, _ := claims[name].(string); got != want {
			return fmt.Errorf("claim %q does not match any associated bound claim values", name)
		}
	}
	return nil
}
