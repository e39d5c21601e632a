package store

import "strings"

// RedactSource returns an address for people, without the parts that may be secret.
func RedactSource(source string) string {
	source, _, _ = strings.Cut(source, "?")
	if scheme, rest, ok := strings.Cut(source, "://"); ok {
		if at := strings.Index(rest, "@"); at >= 0 && !strings.Contains(rest[:at], "/") {
			return scheme + "://…@" + rest[at+1:]
		}
	}
	return source
}
