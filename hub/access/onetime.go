package access

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"

	"skerry/fleet"
)

// oneTimeCipher returns the cipher of a one-time secret. It encrypts one text alone, so its nonce may be constant.
func oneTimeCipher(oneTime string) (cipher.AEAD, error) {
	key := sha256.Sum256([]byte("skerry one-time token\x00" + oneTime))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// SealSecret encrypts the secret of a token with a one-time secret, so that the state has neither.
func SealSecret(oneTime, secret string) ([]byte, error) {
	sealer, err := oneTimeCipher(oneTime)
	if err != nil {
		return nil, err
	}
	return sealer.Seal(nil, make([]byte, sealer.NonceSize()), []byte(secret), nil), nil
}

// OpenSecret decrypts what SealSecret encrypted. CodeForbidden: by another one-time secret.
func OpenSecret(oneTime string, sealed []byte) (string, error) {
	sealer, err := oneTimeCipher(oneTime)
	if err != nil {
		return "", err
	}
	secret, err := sealer.Open(nil, make([]byte, sealer.NonceSize()), sealed, nil)
	if err != nil {
		return "", fleet.Errorf(fleet.CodeForbidden, "exchange a one-time token: its secret is another one")
	}
	return string(secret), nil
}
