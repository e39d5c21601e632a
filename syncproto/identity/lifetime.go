package identity

import (
	"crypto/x509"
	"time"
)

// RenewAt returns the time from which a certificate should be renewed: a third of its lifetime before its end. A
// node that is offline for less than that returns with a valid certificate.
func RenewAt(cert *x509.Certificate) time.Time {
	return cert.NotAfter.Add(-cert.NotAfter.Sub(cert.NotBefore) / 3)
}

// Due reports whether the certificate should be renewed now. It is false if the certificate ends with its CA: a new
// one would not last longer.
func (id *Identity) Due(now time.Time) bool {
	return id.Cert.NotAfter.Before(id.CA.NotAfter) && !now.Before(RenewAt(id.Cert))
}

// Renewed returns a new identity with another certificate (DER) for the same key and CA, with the checks of New.
func (id *Identity) Renewed(cert []byte) (*Identity, error) {
	return New(cert, id.CA.Raw, id.Key)
}
