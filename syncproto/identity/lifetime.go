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

// Renewed returns a new identity with another certificate (DER) for the same key, with the checks of New. One of the
// CAs that the identity accepts must have signed it.
func (id *Identity) Renewed(cert []byte) (*Identity, error) {
	next, err := newOfOneCA(cert, id.Authorities(), id.Key)
	if err != nil {
		return nil, err
	}
	next.Bridges, next.Former = id.Bridges, id.Former
	return next, nil
}
