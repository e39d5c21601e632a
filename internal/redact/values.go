package redact

import (
	"cmp"
	"encoding/base64"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// shortestValue is the number of bytes from which on a value is looked for: a shorter one, such as "1", is in many words.
const shortestValue = 4

// Values takes values that are known to be secret out of texts. The zero value takes out nothing.
type Values struct{ forms []string } // longest first: one value may be a part of another

// NewValues returns the Values of some secrets: in clear, line by line, quoted, escaped for an address, and in base64.
func NewValues(secrets ...string) Values {
	var v Values
	for _, secret := range secrets {
		v.addForms(secret)
		for line := range strings.Lines(secret) {
			v.addForms(strings.TrimSpace(line))
		}
	}
	slices.SortFunc(v.forms, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	v.forms = slices.Compact(v.forms)
	return v
}

// addForms adds the forms in which programs write a text.
func (v *Values) addForms(text string) {
	if len(text) < shortestValue {
		return
	}
	quoted := strconv.Quote(text)
	v.forms = append(v.forms, text, quoted[1:len(quoted)-1], url.QueryEscape(text), url.PathEscape(text),
		base64.StdEncoding.EncodeToString([]byte(text)), base64.URLEncoding.EncodeToString([]byte(text)))
}

// Text returns a text with Mark in place of each value.
func (v Values) Text(text string) string {
	for _, form := range v.forms {
		text = strings.ReplaceAll(text, form, Mark)
	}
	return text
}

// Error returns an error whose text is as Text returns it; nil stays nil. Its chain stays.
func (v Values) Error(err error) error {
	if err == nil {
		return nil
	}
	return withText(err, v.Text(err.Error()))
}
