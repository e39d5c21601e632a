package skerry_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// behaviour is the table of what Nomad's users expect; it lies beside the repository.
const behaviour = "../shared/conformance/behaviour.md"

var (
	tableRow = regexp.MustCompile(`^\| ([A-I]\d+) \|`)
	// A claim is the number of a row, or the first and the last of several.
	claim = regexp.MustCompile(`\b([A-I])(\d{1,3})(?:[-–]([A-I])?(\d{1,3}))?\b`)
	// comment is where Go code speaks of rows, and quoted are names that begin with one.
	comment = regexp.MustCompile(`(?:^|\s)//.*`)
	quoted  = regexp.MustCompile("[\"`/ ]([A-I]\\d{1,3}(?:, ?[A-I]\\d{1,3})*)[\"`:,; )/]")
)

// TestRows counts the rows of the behaviour table: those that a test or a scenario
// names by number, those that docs/compatibility.md lists as decided differently, and
// those that nobody speaks of yet. What the document claims must be there.
func TestRows(t *testing.T) {
	rows := mustRows(t)
	known := map[string]bool{}
	for _, row := range rows {
		known[row] = true
	}
	tested, listed := map[string]bool{}, map[string]bool{}
	for _, file := range mustTestFiles(t) {
		claimed(mustText(t, file), filepath.Ext(file) == ".go", known, tested)
	}
	doc := mustText(t, "docs/compatibility.md")
	for _, row := range claimedRows(doc, known) {
		if !known[row] {
			t.Errorf("docs/compatibility.md speaks of row %s, which does not exist", row)
		}
		listed[row] = true
	}
	var not []string
	count := map[string]int{}
	for _, row := range rows {
		switch {
		case tested[row]:
			count["tested"]++
		case listed[row]:
			count["listed"]++
		default:
			not = append(not, row)
		}
	}
	t.Logf("%d rows: %d tested by number, %d only listed in docs/compatibility.md, %d not yet", len(rows), count["tested"], count["listed"], len(not))
	for _, letter := range []string{"A", "B", "C", "D", "E", "F", "G", "H", "I"} {
		var missing []string
		for _, row := range not {
			if strings.HasPrefix(row, letter) {
				missing = append(missing, row)
			}
		}
		if len(missing) > 0 {
			t.Logf("not yet: %s", strings.Join(missing, " "))
		}
	}
	if count["tested"] == 0 {
		t.Error("no test names a row")
	}
}

// claimed adds the rows that a test file speaks of: in comments, and in names.
func claimed(text string, isGo bool, known, into map[string]bool) {
	for line := range strings.Lines(text) {
		speaks := ""
		switch {
		case !isGo && (strings.HasPrefix(strings.TrimSpace(line), "#") || strings.HasPrefix(line, "case ")):
			speaks = line
		case isGo:
			speaks = comment.FindString(line)
			for _, m := range quoted.FindAllStringSubmatch(line, -1) {
				speaks += " " + m[1]
			}
		}
		for _, row := range claimedRows(speaks, known) {
			if known[row] {
				into[row] = true
			}
		}
	}
}

// claimedRows lists the rows that a text names. Of a range it takes those that exist;
// its ends must.
func claimedRows(text string, known map[string]bool) []string {
	var rows []string
	for _, m := range claim.FindAllStringSubmatch(text, -1) {
		rows = append(rows, m[1]+m[2])
		if m[4] == "" || m[3] != "" && m[3] != m[1] {
			continue
		}
		rows = append(rows, m[1]+m[4])
		first, last := mustNumber(m[2]), mustNumber(m[4])
		for n := first + 1; n < last; n++ {
			if row := fmt.Sprintf("%s%d", m[1], n); known[row] {
				rows = append(rows, row)
			}
		}
	}
	return rows
}

func mustNumber(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil {
		panic(err) // the expression matched digits
	}
	return n
}

// mustRows reads the numbers of the table's rows, in its order.
func mustRows(tb testing.TB) []string {
	tb.Helper()
	var rows []string
	seen := map[string]bool{}
	for line := range strings.Lines(mustText(tb, behaviour)) {
		if m := tableRow.FindStringSubmatch(line); m != nil && !seen[m[1]] {
			seen[m[1]] = true
			rows = append(rows, m[1])
		}
	}
	if len(rows) < 300 {
		tb.Fatalf("%s has %d rows only: %v", behaviour, len(rows), slices.Sorted(maps.Keys(seen)))
	}
	return rows
}

func mustTestFiles(tb testing.TB) []string {
	tb.Helper()
	var files []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != "." {
			return fs.SkipDir
		}
		scenario := filepath.Ext(path) == ".txt" && strings.Contains(path, "testdata")
		if !d.IsDir() && (strings.HasSuffix(path, "_test.go") || scenario) && path != "rows_test.go" {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		tb.Fatalf("list the tests: %v", err)
	}
	return files
}

func mustText(tb testing.TB, path string) string {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}
