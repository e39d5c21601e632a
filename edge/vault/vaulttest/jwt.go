package vaulttest

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
		panic("vaulttest: no key can be made: " + err.Error())
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
		panic("vaulttest: claims have no JSON: " + err.Error())
	}
	signed := encode([]byte(`{"alg":"RS256","kid":"k1","typ":"JWT"}`)) + "." + encode(body)
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, sum[:])
	if err != nil {
		panic("vaulttest: the key does not sign: " + err.Error())
	}
	return signed + "." + encode(signature)
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// checkJWT checks the signature of a JWT, its times, its audience and the bound claims of a role.
func checkJWT(jwt string, keys []byte, role Role, now time.Time) error {
	parts := strings.Split(jwt, ".")
	if len(parts) != 3 {
		return errors.New("it has not three parts")
	}
	var decoded [3][]byte
	for i, part := range parts {
		var err error
		if decoded[i], err = base64.RawURLEncoding.DecodeString(part); err != nil {
			return fmt.Errorf("part %d: %w", i, err)
		}
	}
	var header struct{ Alg, Kid string }
	var set keySet
	claims := map[string]any{}
	if err := errors.Join(json.Unmarshal(decoded[0], &header), json.Unmarshal(decoded[1], &claims), json.Unmarshal(keys, &set)); err != nil {
		return err
	}
	at := slices.IndexFunc(set.Keys, func(k webKey) bool { return k.Kid == header.Kid && k.Kty == "RSA" })
	if header.Alg != "RS256" || at < 0 {
		return fmt.Errorf("no known key successfully validated the token signature")
	}
	n, err := base64.RawURLEncoding.DecodeString(set.Keys[at].N)
	if err != nil {
		return err
	}
	e, err := base64.RawURLEncoding.DecodeString(set.Keys[at].E)
	if err != nil {
		return err
	}
	public := &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(new(big.Int).SetBytes(e).Int64())}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err := rsa.VerifyPKCS1v15(public, crypto.SHA256, sum[:], decoded[2]); err != nil {
		return errors.New("no known key successfully validated the token signature")
	}
	return checkClaims(claims, role, now)
}

func checkClaims(claims map[string]any, role Role, now time.Time) error {
	end, ok := claims["exp"].(float64)
	if !ok || now.Unix() >= int64(end) {
		return errors.New("token is expired")
	}
	var audience []string
	switch aud := claims["aud"].(type) {
	case string:
		audience = []string{aud}
	case []any:
		for _, a := range aud {
			audience = append(audience, fmt.Sprint(a))
		}
	}
	if !slices.Contains(audience, role.Audience) {
		return errors.New("invalid audience (aud) claim: audience claim does not match any bound audience")
	}
	for name, want := range role.Claims {
		if got, _ := claims[name].(string); got != want {
			return fmt.Errorf("claim %q does not match any associated bound claim values", name)
		}
	}
	return nil
}
