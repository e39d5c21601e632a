package identity

import (
	"crypto/x509"
	"time"
)

// RenewAt is from when on a certificate is renewed: with a third of its lifetime
// left, so that whoever is away for less than that comes back with one that holds.
func RenewAt(cert *x509.Certificate) time.Time {
	return cert.NotAfter.Add(-cert.NotAfter.Sub(cert.NotBefore) / 3)
}

// Due reports whether the certificate is to be renewed. One that ends with its CA
// is not: no other would last longer.
func (id *Identity) Due(now time.Time) bool {
	return id.Cert.NotAfter.Before(id.CA.NotAfter) && !now.Before(RenewAt(id.Cert))
}

// Renewed is the identity with another certificate (DER) for its key.
func (id *Identity) Renewed(cert []byte) (*Identity, error) {
	return New(cert, id.CA.Raw, id.Key)
}
