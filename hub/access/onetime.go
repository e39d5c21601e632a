package access

import (
	"crypto/sha256"

	"skerry/fleet"
	"skerry/internal/sealing"
)

// oneTimeKey returns the key of a one-time secret. It encrypts one text alone.
func oneTimeKey(oneTime string) (sealing.Key, error) {
	key := sha256.Sum256([]byte("skerry one-time token\x00" + oneTime))
	return sealing.NewKey(key[:])
}

// SealSecret encrypts the secret of a token with a one-time secret, so that the state has neither.
func SealSecret(oneTime, secret string) ([]byte, error) {
	key, err := oneTimeKey(oneTime)
	if err != nil {
		return nil, err
	}
	return key.SealOnly([]byte(secret)), nil
}

// OpenSecret decrypts what SealSecret encrypted. CodeForbidden: by another one-time secret.
func OpenSecret(oneTime string, sealed []byte) (string, error) {
	key, err := oneTimeKey(oneTime)
	if err != nil {
		return "", err
	}
	secret, err := key.OpenOnly(sealed)
	if err != nil {
		return "", fleet.Errorf(fleet.CodeForbidden, "exchange a one-time token: its secret is another one")
	}
	return string(secret), nil
}
