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

// splitWords makes words of a line, without its comment: a # at the beginning of a word
// and what follows.
func splitWords(text string, number int) []token {
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

func (r *reader) failAtToken(t token, hint, format string, args ...any) {
	if !r.failed {
		r.report(t, fmt.Sprintf(format, args...), hint)
	}
	r.failed = true
}

func (r *reader) isAtEnd() bool { return r.failed || len(r.words) == 0 }

// peekWord is the next word, "" at the end.
func (r *reader) peekWord() string {
	if r.isAtEnd() {
		return ""
	}
	return r.words[0].text
}

// nextWord takes the next word; what says what it has to be, for people.
func (r *reader) nextWord(what string) token {
	if r.failed {
		return r.end
	}
	if len(r.words) == 0 {
		r.failAtToken(r.end, "", "%s is missing", what)
		return r.end
	}
	t := r.words[0]
	r.words = r.words[1:]
	return t
}

// acceptWord takes the next word if it is that one.
func (r *reader) acceptWord(word string) bool {
	if r.peekWord() != word {
		return false
	}
	r.words = r.words[1:]
	return true
}

// expectWord takes a word that has to stand here.
func (r *reader) expectWord(word string) {
	t := r.nextWord(fmt.Sprintf("%q", word))
	if t.text != word {
		r.failAtToken(t, "", "%q instead of %q", t.text, word)
	}
}

func (r *reader) nextDuration(what string) time.Duration {
	t := r.nextWord(what)
	d, err := parseDuration(t.text, 0, longest)
	if err != nil {
		r.failAtToken(t, "", "%s %s", what, err)
	}
	return d
}

func (r *reader) nextCount(what string, most int) int {
	t := r.nextWord(what)
	n, err := parseCount(t.text, 0, most)
	if err != nil {
		r.failAtToken(t, "", "%s %s", what, err)
	}
	return n
}

func (r *reader) nextLabel(what string) token {
	t := r.nextWord(what)
	if err := checkLabel(t.text); err != nil {
		r.failAtToken(t, "", "%s %s: %q", what, err, t.text)
	}
	return t
}

// expectEndOfLine says that something follows that has no place here.
func (r *reader) expectEndOfLine(hint string) {
	if !r.isAtEnd() {
		r.failAtToken(r.words[0], hint, "%q has no place here", r.words[0].text)
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

// newUnknownError says that a name is not one of a set, and which was meant.
func newUnknownError(what, name string, known []string) error {
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
