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
	b.WriteString("| on | written | may have | what | not meanwhile | time |\n|---|---|---|---|---|---|\n")
	for _, kind := range schedule.Kinds() {
		info, _ := kind.Info()
		var may, apart []string
		if info.Lasting == schedule.MayLast || info.Lasting == schedule.MayStay {
			may = append(may, "`for`")
		}
		for _, p := range info.Params {
			switch {
			case p.Needed:
			case len(p.Words) > 0:
				may = append(may, "`"+p.Name+"` ("+strings.Join(p.Words, ", ")+")")
			default:
				may = append(may, "`"+p.Name+"`")
			}
		}
		for _, k := range info.Apart {
			apart = append(apart, "`"+string(k)+"`")
		}
		usage := strings.ReplaceAll(strings.Replace(kind.Usage(), "at: 5m, ", "", 1), "|", `\|`)
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s | %s | %s |\n", info.At, usage, strings.Join(may, ", "), info.Doc, strings.Join(apart, ", "), info.Clock)
	}
	return b.String()
}

// TestReadmeIsRead takes the example and what can be expected for what they are.
func TestReadmeIsRead(t *testing.T) {
	b, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for line := range strings.Lines(string(b)) {
		if code, ok := strings.CutPrefix(line, "    "); ok {
			text.WriteString(strings.Replace(code, "{ … }", strings.ReplaceAll("{\ngroup \"g\" {\ntask \"t\" {\ndriver = \"sim\"\n}\n}\n}", "\n", "\n          "), 1))
		}
		if rest, ok := strings.CutPrefix(line, "| `{about:"); ok {
			expectation, _, _ := strings.Cut(rest, "`")
			text.WriteString("  - {about:" + expectation + "\n")
		}
	}
	mustParse(t, text.String())
}
