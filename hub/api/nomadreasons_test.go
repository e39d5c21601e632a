package api_test

import (
	"bufio"
	"bytes"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mustReasons reads testdata/nomadkeys.txt: a key of Nomad's types a line, and why it is
// not filled.
func mustReasons(tb testing.TB) map[string]string {
	tb.Helper()
	b, err := os.ReadFile("testdata/nomadkeys.txt")
	if err != nil {
		tb.Fatal(err)
	}
	reasons := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, why, _ := strings.Cut(line, " ")
		if strings.TrimSpace(why) == "" {
			tb.Errorf("testdata/nomadkeys.txt: %s has no reason", key)
		}
		if reasons[key] != "" {
			tb.Errorf("testdata/nomadkeys.txt: %s is there twice", key)
		}
		reasons[key] = strings.TrimSpace(why)
	}
	return reasons
}

// checkAsked checks that every endpoint was asked, and that no list was always empty: the keys of an object that no answer
// has are compared with nothing.
func (w *keyWalk) checkAsked(tb testing.TB) {
	tb.Helper()
	wanted := maps.Clone(answered)
	for topic, of := range topics {
		w.asked["GET /v1/event/stream "+topic], wanted["GET /v1/event/stream "+topic] = true, of
	}
	for _, endpoint := range slices.Sorted(maps.Keys(wanted)) {
		t := elementOf(reflect.TypeOf(wanted[endpoint]))
		switch {
		case !w.asked[endpoint]:
			tb.Errorf("%s was not asked", endpoint)
		case t.Kind() == reflect.Struct && t.NumField() > 0 && w.where[endpoint] == nil:
			tb.Errorf("%s answered with no %s", endpoint, t)
		}
	}
}

// checkReasons compares the keys that were not filled with the list of reasons.
func (w *keyWalk) checkReasons(tb testing.TB, reasons map[string]string) {
	tb.Helper()
	seen := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(w.keys)) {
		if w.keys[key] < filled {
			seen[key] = true
			if reasons[key] == "" {
				tb.Errorf("%s is %s", key, map[fill]string{neverThere: "never there", thereButEmpty: "there, and never filled"}[w.keys[key]])
			}
		}
	}
	for _, endpoint := range slices.Sorted(maps.Keys(w.where)) {
		for _, key := range slices.Sorted(maps.Keys(w.where[endpoint])) {
			if w.keys[key] == neverThere || w.where[endpoint][key] != neverThere {
				continue
			}
			at := strings.ReplaceAll(endpoint, " ", ":") + ":" + key
			seen[at] = true
			if reasons[at] == "" && reasons[key] == "" {
				tb.Errorf("%s is never there in the answers of %s", key, endpoint)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(reasons)) {
		if strings.HasPrefix(reasons[key], "sometimes: ") {
			mustNameATest(tb, key, reasons[key])
			continue
		}
		if !seen[key] {
			tb.Errorf("testdata/nomadkeys.txt: %s is filled, or is no key of Nomad's: take it out", key)
		}
	}
}

var namedTest = regexp.MustCompile(`\((Test\w+)\)$`)

// mustNameATest checks that the reason of a key that this walk fills only sometimes names a test
// that mentions the key.
func mustNameATest(tb testing.TB, key, reason string) {
	tb.Helper()
	name := namedTest.FindStringSubmatch(reason)
	if name == nil {
		tb.Errorf("testdata/nomadkeys.txt: %s names no test that fills it", key)
		return
	}
	field := key[strings.LastIndex(key, ".")+1:]
	for _, text := range mustReadFiles(tb, "*_test.go", "../*/*_test.go", "../../fleet/*_test.go", "../../fleet/*/*_test.go", "../../edge/*/*_test.go") {
		if _, body, ok := strings.Cut(text, "func "+name[1]+"("); ok && strings.Contains(strings.SplitN(body, "\n}\n", 2)[0], field) {
			return
		}
	}
	tb.Errorf("testdata/nomadkeys.txt: there is no %s that speaks of %s", name[1], field)
}

// mustReadFiles yields the path and the text of each file that matches one of the patterns.
func mustReadFiles(tb testing.TB, patterns ...string) iter.Seq2[string, string] {
	return func(yield func(path, text string) bool) {
		tb.Helper()
		for _, pattern := range patterns {
			files, err := filepath.Glob(pattern)
			if err != nil {
				tb.Fatal(err)
			}
			for _, file := range files {
				b, err := os.ReadFile(file)
				if err != nil {
					tb.Fatal(err)
				}
				if !yield(file, string(b)) {
					return
				}
			}
		}
	}
}
