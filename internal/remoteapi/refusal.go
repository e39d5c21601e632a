package remoteapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// maxErrorText bounds what an error has of an answer, in bytes.
const maxErrorText = 512

// Refusal is an answer that is no success.
type Refusal struct {
	Status   int
	Text     string // what the server says, without secrets; "": nothing that is for an error
	Location string // of a redirect
}

// Error implements error.
func (r *Refusal) Error() string {
	said := fmt.Sprintf("it answered %d %s", r.Status, http.StatusText(r.Status))
	if r.Text != "" {
		said += ": " + r.Text
	}
	return said
}

// isFinal reports whether asking again the same way does not help. A server that is sealed, a standby or too busy can
// answer later.
func (r *Refusal) isFinal() bool {
	return r.Status >= 400 && r.Status <= 451 && r.Status != http.StatusTooManyRequests && r.Status != http.StatusPreconditionFailed
}

// RefusalOf returns the Refusal of an error; nil: the server gave no answer, or one of success.
func RefusalOf(err error) *Refusal {
	var r *Refusal
	errors.As(err, &r)
	return r
}

// IsRefused reports whether the server answered, and said no: asking again the same way does not help.
func IsRefused(err error) bool {
	r := RefusalOf(err)
	return r != nil && r.isFinal()
}

// IsMissing reports whether the server has nothing at a path.
func IsMissing(err error) bool {
	r := RefusalOf(err)
	return r != nil && r.Status == http.StatusNotFound
}

// errorText returns what an answer says of an error, without secrets: the errors of Vault's JSON, or plain text, which
// Consul sends. Anything else is a proxy's page.
func errorText(contentType string, b []byte, hidden ...string) string {
	var answer struct {
		Errors []string `json:"errors"`
	}
	text := ""
	if json.Unmarshal(b, &answer) == nil {
		text = strings.Join(answer.Errors, "; ")
	} else if strings.HasPrefix(contentType, "text/plain") {
		text = string(b)
	}
	for _, h := range hidden {
		if h != "" {
			text = strings.ReplaceAll(text, h, "…")
		}
	}
	return strings.ToValidUTF8(strings.Join(strings.Fields(text[:min(len(text), maxErrorText)]), " "), "?")
}
