package clienttls_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry/internal/clienttls"
)

func TestIsLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "127.0.0.1": true, "127.9.9.9": true, "::1": true,
		"": false, "192.0.2.1": false, "::": false, "localhost.example.com": false, "127.0.0.1.example.com": false,
	} {
		if got := clienttls.IsLoopback(host); got != want {
			t.Errorf("%q: %t, want %t", host, got, want)
		}
	}
}

// TestFilesThatCannotBeRead names the server and the file.
func TestFilesThatCannotBeRead(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		files clienttls.Files
		want  string
	}{
		{clienttls.Files{CA: text + ".missing"}, "read the CA file of the server"},
		{clienttls.Files{CA: text}, "CA file of the server " + text + ": it has no certificate in PEM"},
		{clienttls.Files{Cert: text}, "read the certificate and the key for the server"},
		{clienttls.Files{Key: text}, "read the certificate and the key for the server"},
	} {
		c.files.Server = "the server"
		if _, err := c.files.Load(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.files, err, c.want)
		}
	}
}
