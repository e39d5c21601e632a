package jobspec_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestCompatibility holds the table of blocks and attributes in docs/compatibility.md against
// attributes.txt; -rewrite writes it anew.
func TestCompatibility(t *testing.T) {
	const doc, begin, end = "../../docs/compatibility.md", "<!-- attributes -->\n", "<!-- /attributes -->"
	text := string(mustRead(t, doc))
	before, rest, ok := strings.Cut(text, begin)
	old, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatalf("%s has no %s", doc, begin)
	}
	table := mustAttributes(t).markdownTable()
	if *rewrite {
		if err := os.WriteFile(doc, []byte(before+begin+table+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if old != table {
		t.Errorf("%s does not say what attributes.txt does; go test ./fleet/jobspec -run Compatibility -rewrite writes it anew", doc)
	}
}

// markdownTable is a row for each kind of block of which something is not refused together with
// the block.
func (t *attributeTable) markdownTable() string {
	var s strings.Builder
	s.WriteString("| block | supported | kept for programs that read the job | ignored, with a warning | refused at registration |\n|---|---|---|---|---|\n")
	var sections []string
	for _, e := range t.entries {
		if e.outcome != "within" && !slices.Contains(sections, e.section) {
			sections = append(sections, e.section)
		}
	}
	for _, section := range sections {
		cells := map[string][]string{}
		for _, e := range t.entries {
			if e.section != section || e.outcome == "within" && !(e.isBlock() && t.isGroupOrTaskPart(e)) || e.outcome == "see" {
				continue
			}
			column := map[string]string{"invalid": "refused", "within": "refused"}[e.outcome]
			if column == "" {
				column = e.outcome
			}
			if word := t.describeEntry(e); !slices.Contains(cells[column], word) {
				cells[column] = append(cells[column], word)
			}
		}
		row := []string{strings.ReplaceAll(strings.TrimPrefix(section, "job."), ".", " → ")}
		for _, column := range []string{"works", "kept", "warned", "refused"} {
			row = append(row, strings.Join(cells[column], " "))
		}
		if slices.Equal(row[1:], []string{"", "", "", ""}) {
			continue
		}
		fmt.Fprintf(&s, "| %s |\n", strings.Join(row, " | "))
	}
	return s.String()
}

// isGroupOrTaskPart reports whether a block that is refused within another one is itself something
// that a group or a task asks for.
func (t *attributeTable) isGroupOrTaskPart(e entry) bool {
	return e.section == "job.group" || e.section == "job.group.task" || e.section == "job.group.service"
}

// describeEntry names an entry: with its value where others of the same attribute have another
// outcome.
func (t *attributeTable) describeEntry(e entry) string {
	if e.isBlock() {
		return "`" + e.nameWithoutBraces() + " { }`"
	}
	for _, other := range t.entries {
		if other.section == e.section && other.name == e.name && other.outcome != e.outcome {
			return fmt.Sprintf("`%s = %s`", e.name, e.example)
		}
	}
	return "`" + e.name + "`"
}
