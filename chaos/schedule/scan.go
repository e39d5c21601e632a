package schedule

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"skerry/fleet/jobspec"
)

// token is a word of a scenario and where it stands; both count from 1, columns in
// characters.
type token struct {
	text         string
	line, column int
}

// split makes words of a line, without its comment: a # at the beginning of a word
// and what follows.
func split(text string, number int) []token {
	var words []token
	start := -1
	for i, r := range text + " " {
		switch {
		case r == ' ' || r == '\t' || r == '\r':
			if start >= 0 {
				words = append(words, token{text[start:i], number, utf8.RuneCountInString(text[:start]) + 1})
			}
			start = -1
		case r == '#' && start < 0:
			return words
		case start < 0:
			start = i
		}
	}
	return words
}

// reader reads the words of a line in order, and notes what is wrong where. After a
// failure what it returns means nothing, until the caller has looked at failed.
type reader struct {
	words  []token
	end    token // behind the last word
	failed bool
	report func(t token, message, hint string)
}

func (r *reader) fail(t token, hint, format string, args ...any) {
	if !r.failed {
		r.report(t, fmt.Sprintf(format, args...), hint)
	}
	r.failed = true
}

func (r *reader) done() bool { return r.failed || len(r.words) == 0 }

// peek is the next word, "" at the end.
func (r *reader) peek() string {
	if r.done() {
		return ""
	}
	return r.words[0].text
}

// next takes the next word; what says what it has to be, for people.
func (r *reader) next(what string) token {
	if r.failed {
		return r.end
	}
	if len(r.words) == 0 {
		r.fail(r.end, "", "%s is missing", what)
		return r.end
	}
	t := r.words[0]
	r.words = r.words[1:]
	return t
}

// take takes the next word if it is that one.
func (r *reader) take(word string) bool {
	if r.peek() != word {
		return false
	}
	r.words = r.words[1:]
	return true
}

// want takes a word that has to stand here.
func (r *reader) want(word string) {
	t := r.next(fmt.Sprintf("%q", word))
	if t.text != word {
		r.fail(t, "", "%q instead of %q", t.text, word)
	}
}

func (r *reader) duration(what string) time.Duration {
	t := r.next(what)
	d, err := parseDuration(t.text, 0, longest)
	if err != nil {
		r.fail(t, "", "%s %s", what, err)
	}
	return d
}

func (r *reader) count(what string, most int) int {
	t := r.next(what)
	n, err := parseCount(t.text, 0, most)
	if err != nil {
		r.fail(t, "", "%s %s", what, err)
	}
	return n
}

func (r *reader) label(what string) token {
	t := r.next(what)
	if err := checkLabel(t.text); err != nil {
		r.fail(t, "", "%s %s: %q", what, err, t.text)
	}
	return t
}

// close says that something follows that has no place here.
func (r *reader) close(hint string) {
	if !r.done() {
		r.fail(r.words[0], hint, "%q has no place here", r.words[0].text)
	}
}

// unknownError is a name that is none of a set.
type unknownError struct{ message, hint string }

func (e *unknownError) Error() string {
	if e.hint == "" {
		return e.message
	}
	return e.message + " (" + e.hint + ")"
}

// unknown says that a name is not one of a set, and which was meant.
func unknown(what, name string, known []string) error {
	e := &unknownError{message: fmt.Sprintf("unknown %s %q", what, name), hint: "there are " + strings.Join(known, ", ")}
	best := len(name)/2 + 1
	for _, k := range known {
		if d := distance(name, k, best); d < best {
			best, e.hint = d, "did you mean "+k+"?"
		}
	}
	return e
}

// distance is how many characters have to be inserted, removed or changed to make b
// of a; anything from limit on is limit.
func distance(a, b string, limit int) int {
	if len(a) > maxLabel || len(b) > maxLabel {
		return limit
	}
	row := make([]int, len(b)+1)
	for i := range row {
		row[i] = i
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for k := range len(b) {
			cost := diagonal
			if a[i] != b[k] {
				cost++
			}
			diagonal = row[k+1]
			row[k+1] = min(cost, row[k]+1, row[k+1]+1)
		}
	}
	return min(row[len(b)], limit)
}

// Diagnostics are all that is wrong with a scenario, by position; see package
// jobspec.
type Diagnostics = jobspec.Diagnostics
