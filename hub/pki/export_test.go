package pki

import (
	"crypto/x509"
	"time"

	"skerry/hub/state"
)

// SignForHTTP returns the chain that a hub shows to clients of its HTTP API. keys are those of the CAs, by number.
func SignForHTTP(cas state.CAs, keys map[uint64][]byte, now time.Time) (chain []*x509.Certificate, err error) {
	plan, err := planAuthorities(cas, now)
	if err != nil {
		return nil, err
	}
	web, err := parseAuthority(plan.web.Cert, keys[plan.web.Number])
	if err != nil {
		return nil, err
	}
	made, err := web.SignHTTP("one", []string{"hub.example"}, now, plan.webChain)
	if err != nil {
		return nil, err
	}
	for _, der := range made.Certificate {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		chain = append(chain, cert)
	}
	return chain, nil
}
