// Package clienttls has the TLS of clients that call servers of others, such as Consul or Vault.
package clienttls

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
)

// IsLoopback reports whether the host of a URL is this machine: nobody else sees what goes there without TLS.
func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Files are files in PEM, each "" for none, and what they are for.
type Files struct {
	Server     string // the server, as errors name it
	CA         string // certificates that the server must have one of; "": the system's
	Cert, Key  string // of this client, for a server that asks for it
	ServerName string // in the server's certificate; "": that of the address
}

// Load reads the files.
func (f Files) Load() (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.ServerName}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("read the CA file of %s: %w", f.Server, err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("CA file of %s %s: it has no certificate in PEM", f.Server, f.CA)
		}
	}
	if f.Cert != "" || f.Key != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("read the certificate and the key for %s: %w", f.Server, err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}
