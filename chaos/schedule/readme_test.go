package schedule_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"skerry/chaos/schedule"
)

const readme = "../scenarios/README.md"

// TestReadmeListsAllKinds keeps the table of faults as people read it.
func TestReadmeListsAllKinds(t *testing.T) {
	const first, last = "<!-- kinds -->\n", "<!-- /kinds -->\n"
	b, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := strings.Cut(string(b), first)
	_, tail, ok2 := strings.Cut(rest, last)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no place for the table", readme)
	}
	golden(t, readme, head+first+kindsTable()+last+tail)
}

func kindsTable() string {
	var b strings.Builder
	b.WriteString("| on | written | what | not meanwhile | time |\n|---|---|---|---|---|\n")
	for _, kind := range schedule.Kinds() {
		info, _ := kind.Info()
		apart := make([]string, len(info.Apart))
		for i, k := range info.Apart {
			apart[i] = "`" + string(k) + "`"
		}
		usage := strings.ReplaceAll(strings.TrimPrefix(kind.Usage(), "at 5m "), "|", `\|`)
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s | %s |\n", info.At, usage, info.Doc, strings.Join(apart, ", "), info.Clock)
	}
	return b.String()
}

// TestReadmeIsRead takes the example for what it is.
func TestReadmeIsRead(t *testing.T) {
	b, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for line := range strings.Lines(string(b)) {
		if code, ok := strings.CutPrefix(line, "    "); ok {
			text.WriteString(strings.Replace(code, "{ … }", "{\ngroup \"g\" {\ntask \"t\" {\ndriver = \"sim\"\n}\n}\n}", 1))
		}
		if rest, ok := strings.CutPrefix(line, "| `expect "); ok {
			expectation, _, _ := strings.Cut(rest, "`")
			text.WriteString("expect " + expectation + "\n")
		}
	}
	mustParse(t, text.String())
}
