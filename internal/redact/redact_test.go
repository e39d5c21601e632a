package redact_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"skerry/internal/redact"
)

func TestAddress(t *testing.T) {
	for address, want := range map[string]string{
		"https://example.com/a/b":                    "https://example.com/a/b",
		"https://example.com:8443/a?token=hidden":    "https://example.com:8443/a",
		"https://example.com/a#hidden":               "https://example.com/a",
		"https://user:hidden@example.com/a":          "https://…@example.com/a",
		"https://hidden@example.com/a":               "https://…@example.com/a",
		"https://user:hi@dden@example.com/a":         "https://…@example.com/a",
		"https://user:hid/den@example.com/a":         "https://…",
		"https://user:hid?den@example.com/a":         "https://…",
		"https://user:hid#den@example.com/a":         "https://…",
		"git::https://user:hidden@example.com/r.git": "git::https://…@example.com/r.git",
		"user:hidden@example.com/a":                  "…@example.com/a",
		"git@example.com:r.git":                      "git@example.com:r.git",
		"oci://example.com/web@sha256:00":            "oci://example.com/web@sha256:00",
		"https://[::1]:80/a":                         "https://[::1]:80/a",
		"https://[::1]/a":                            "https://[::1]/a",
		"unix:///run/agent.sock":                     "unix:///run/agent.sock",
		"/opt/a:b":                                   "/opt/a:b",
		"":                                           "",
	} {
		if got := redact.Address(address); got != want {
			t.Errorf("%s is %s, want %s", address, got, want)
		}
	}
}

// TestErrorOfARequest: the error of a request that failed has neither its query nor its user, also where a server has redirected it,
// and its chain stays.
func TestErrorOfARequest(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	from := httptest.NewServer(http.RedirectHandler(closed.URL+"/b?sig=hidden", http.StatusFound))
	defer from.Close()
	host := strings.TrimPrefix(closed.URL, "http://")
	for _, address := range []string{"http://hidden@" + host + "/a", "http://u:hidden@" + host + "/a", closed.URL + "/a?token=hidden%22", from.URL + "/a?x=1", "http://hid den/%zz?hidden", "http://u:hidden/2@" + host + "/a"} {
		_, err := http.Get(address) //nolint:bodyclose // there is no answer
		if err == nil || !strings.Contains(err.Error(), "hid") && !strings.Contains(address, ":hidden@") {
			t.Fatalf("%s: the error has nothing to hide: %v", address, err)
		}
		got := redact.Error(errors.Join(io.ErrClosedPipe, fmt.Errorf("fetch it: %w", err)))
		if text := got.Error(); strings.Contains(text, "hidden") || !strings.Contains(text, "fetch it: Get ") && !strings.Contains(text, "parse") {
			t.Errorf("%s: %s", address, text)
		}
		var request *url.Error
		if !errors.As(got, &request) || !errors.Is(got, io.ErrClosedPipe) {
			t.Errorf("%s: the chain is broken", address)
		}
	}
	if redact.Error(nil) != nil || redact.Error(io.EOF) != io.EOF {
		t.Error("an error without an address is another one")
	}
}

// TestValues: a value is found in the forms in which programs write it, also a part of another one, and one line of several.
func TestValues(t *testing.T) {
	v := redact.NewValues("s3cr", "s3cr3t/ +\"x", "-----BEGIN KEY-----\nTWFya2Vk\n", "1", "")
	for text, want := range map[string]string{
		`the value s3cr3t/ +"x is wrong`:    "the value … is wrong",
		`the value "s3cr3t/ +\"x" is wrong`: `the value "…" is wrong`,
		"?x=s3cr3t%2F+%2B%22x":              "?x=…",
		"/s3cr3t%2F%20+%22x/y":              "/…/y",
		"Basic czNjcjN0LyArIng=":            "Basic …",
		"s3cr and TWFya2Vk, in 1 line":      "… and …, in 1 line",
		"nothing":                           "nothing",
	} {
		if got := v.Text(text); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
	err := v.Error(fmt.Errorf("parse s3cr3t: %w", io.ErrUnexpectedEOF))
	if err.Error() != "parse …3t: unexpected EOF" || !errors.Is(err, io.ErrUnexpectedEOF) || v.Error(nil) != nil {
		t.Errorf("the error is %v", err)
	}
}
