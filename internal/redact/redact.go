// Package redact takes secrets out of texts that people see: the credentials of addresses, and values that are known to be secret.
//
// Hubs, edges and commands call it before a text becomes an error, an event or a line of a log. It is pure.
package redact

import (
	"net/url"
	"strconv"
	"strings"
)

// Mark stands for what was taken out of a text.
const Mark = "…"

// Address returns an address without its user, its password, its query and its fragment.
func Address(address string) string {
	scheme, rest, isURL := strings.Cut(address, "://")
	if isURL {
		scheme += "://"
	} else {
		scheme, rest = "", address
	}
	rest, _, _ = strings.Cut(rest, "?")
	rest, _, _ = strings.Cut(rest, "#")
	host, path := rest, ""
	if slash := strings.IndexByte(rest, '/'); slash >= 0 {
		host, path = rest[:slash], rest[slash:]
	}
	if at := strings.LastIndexByte(host, '@'); at >= 0 && (isURL || strings.Contains(host[:at], ":")) {
		host = Mark + host[at:]
	}
	if isURL && !hasPort(host) { // a password with a slash, a question mark or a # has ended the host too early
		return scheme + Mark
	}
	return scheme + host + path
}

// hasPort reports whether nothing but a port follows the colon of a host. It is true for a host without a colon.
func hasPort(host string) bool {
	colon := strings.LastIndexByte(host, ':')
	return colon <= strings.LastIndexByte(host, ']') || strings.Trim(host[colon+1:], "0123456789") == ""
}

// redacted is an error with another text.
type redacted struct {
	error
	text string
}

// Error implements error.
func (r redacted) Error() string { return r.text }

// Unwrap returns the error itself, whose text has the secrets.
func (r redacted) Unwrap() error { return r.error }

// Error returns an error whose text has each address of a failed HTTP request in its chain, and each that does not parse, as Address
// returns it.
func Error(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for _, failed := range requestErrors(err) {
		shown := Address(failed.URL)
		if shown == failed.URL {
			continue
		}
		if failed.Op == "parse" { // its reason quotes a part of the address
			text = strings.ReplaceAll(text, failed.Err.Error(), "it is malformed")
		}
		quoted := strconv.Quote(failed.URL) // as url.Error writes it
		text = strings.ReplaceAll(text, quoted[1:len(quoted)-1], shown)
		text = strings.ReplaceAll(text, failed.URL, shown)
	}
	return withText(err, text)
}

// requestErrors returns the url.Errors in the chain of an error.
func requestErrors(err error) (found []*url.Error) {
	if failed, ok := err.(*url.Error); ok {
		found = append(found, failed)
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			found = append(found, requestErrors(inner)...)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			found = append(found, requestErrors(inner)...)
		}
	}
	return found
}

// withText returns an error with another text; err itself if the text is the same.
func withText(err error, text string) error {
	if text == err.Error() {
		return err
	}
	return redacted{err, text}
}
