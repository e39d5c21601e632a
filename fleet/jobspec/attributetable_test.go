package jobspec_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"skerry/fleet/jobspec"
)

// testdata/attributes.txt says of every block and attribute that a job file can hold what
// becomes of it. A section is a kind of block, [PATH] with the attributes that it cannot do
// without; a line in it is
//
//	NAME | EXAMPLE | DEFAULT | OUTCOME
//
// An attribute's EXAMPLE is HCL ("a" alone stands for a value of its kind), "; PATH.NAME =
// VALUE" behind it stands beside it, further out, and "=> JSON" is what it becomes where
// that is not plain. "@KEY.KEY" behind the NAME is where in the block's JSON it is, where
// that is not plain. DEFAULT is JSON or a duration, "needed", or "-" where the block says something
// else without it. A block is NAME {}. The OUTCOME is
//
//	works TESTS   it does what it says, which those tests show
//	kept          it is for people who read the job, whose JSON has it
//	warned        the job is taken, with a warning that names it
//	refused       the job is refused at registration, by its name and with what to do instead
//	within        the block is refused, and it with it
//	invalid       no job may say so, and the error names it
//	see           of a block: its own section says it
type entry struct {
	section, name string // a block's name ends in " {}"
	at            string
	example, json string
	beside        map[string]string // PATH.NAME: VALUE
	byDefault     string
	outcome       string
	tests         []string
	line          int
}

func (e entry) isBlock() bool { return strings.HasSuffix(e.name, " {}") }

func (e entry) nameWithoutBraces() string { return strings.TrimSuffix(e.name, " {}") }

type attributeTable struct {
	entries []entry
	frames  map[string]map[string]string // by section
	labels  map[string]string
	at      map[string]string            // where in the job's JSON a section's blocks are, if not plain
	outer   map[string]map[string]string // PATH.NAME: VALUE that a section needs further out
	volumes map[string]string            // a block of the group that a section needs
	parts   map[string]jobspec.SchemaPart
}

func mustAttributes(tb testing.TB) *attributeTable {
	tb.Helper()
	t := &attributeTable{
		frames: map[string]map[string]string{}, labels: map[string]string{}, at: map[string]string{}, parts: map[string]jobspec.SchemaPart{},
		outer: map[string]map[string]string{}, volumes: map[string]string{},
	}
	for _, p := range jobspec.Schema() {
		t.parts[p.Path] = p
	}
	section, n := "", 0
	for line := range strings.Lines(string(mustRead(tb, "testdata/attributes.txt"))) {
		n++
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			head, rest, _ := strings.Cut(line[1:], "]")
			section = head
			frame := map[string]string{}
			for _, word := range strings.Split(rest, ";") {
				name, value, ok := strings.Cut(word, "=")
				name, value = strings.TrimSpace(name), strings.TrimSpace(value)
				switch {
				case !ok:
				case name == "label":
					t.labels[section] = value
				case name == "@":
					t.at[section] = value
				case name == "+job.group":
					t.volumes[section] = value
				case strings.Contains(name, "."):
					t.outer[section] = map[string]string{name: value}
				default:
					frame[name] = value
				}
			}
			if t.frames[section] != nil {
				tb.Errorf("attributes.txt:%d: section %s is there twice", n, section)
			}
			t.frames[section] = frame
		default:
			e, err := parseEntry(section, line)
			if err != nil {
				tb.Fatalf("attributes.txt:%d: %v", n, err)
			}
			e.line = n
			t.entries = append(t.entries, e)
		}
	}
	return t
}

func parseEntry(section, line string) (entry, error) {
	cols := strings.Split(line, "|")
	if len(cols) != 4 {
		return entry{}, fmt.Errorf("%d columns, not 4: %s", len(cols), line)
	}
	for i := range cols {
		cols[i] = strings.TrimSpace(cols[i])
	}
	e := entry{section: section, byDefault: cols[2], beside: map[string]string{}}
	e.name, e.at, _ = strings.Cut(cols[0], " @")
	example, becomes, _ := strings.Cut(cols[1], "=>")
	words := strings.Split(example, ";")
	e.example, e.json = strings.TrimSpace(words[0]), strings.TrimSpace(becomes)
	for _, w := range words[1:] {
		name, value, ok := strings.Cut(w, "=")
		if !ok {
			return e, fmt.Errorf("%q is not PATH.NAME = VALUE", w)
		}
		e.beside[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	fields := strings.Fields(cols[3])
	e.outcome, e.tests = fields[0], fields[1:]
	if !slices.Contains([]string{"works", "kept", "warned", "refused", "within", "invalid", "see"}, e.outcome) {
		return e, fmt.Errorf("unknown outcome %q", e.outcome)
	}
	return e, nil
}

// schemaAttrOf is the schema's word on an entry.
func (t *attributeTable) schemaAttrOf(e entry) (jobspec.SchemaAttr, bool) {
	for _, a := range t.parts[e.section].Attrs {
		if a.Name == e.name {
			return a, true
		}
	}
	return jobspec.SchemaAttr{}, false
}

func (t *attributeTable) schemaBlockOf(section, name string) (jobspec.SchemaBlock, bool) {
	for _, b := range t.parts[section].Blocks {
		if b.Name == name {
			return b, true
		}
	}
	return jobspec.SchemaBlock{}, false
}

// lineWriter writes a job file, and counts its lines.
type lineWriter struct {
	strings.Builder
	lines int
}

func (w *lineWriter) writeLine(format string, args ...any) {
	fmt.Fprintf(w, format+"\n", args...)
	w.lines++
}

// exampleFile writes a job file that asks for what an entry is about, or only for what there must
// be around it; line is where it stands.
func (t *attributeTable) exampleFile(e entry, asks bool) (src string, line int) {
	var w lineWriter
	t.writeExample(&w, e, asks, 1, &line)
	return w.String(), line
}

// writeExample writes the block at a depth of the path to an entry, and what is in it.
func (t *attributeTable) writeExample(w *lineWriter, e entry, asks bool, depth int, line *int) {
	path := strings.Split(e.section, ".")
	section, last := strings.Join(path[:depth], "."), depth == len(path)
	frame := maps.Clone(t.frames[section])
	for at, value := range t.requiredAttributes(e) {
		if i := strings.LastIndex(at, "."); at[:max(i, 0)] == section || i < 0 && last {
			if frame == nil {
				frame = map[string]string{}
			}
			frame[at[i+1:]] = value
		}
	}
	if last && asks {
		delete(frame, e.name)
	}
	w.writeLine("%s%s {", path[depth-1], t.labelOfBlock(section, strings.Join(path[:depth-1], "."), path[depth-1]))
	for _, attr := range slices.Sorted(maps.Keys(frame)) {
		if frame[attr] != "" {
			w.writeLine("%s = %s", attr, frame[attr])
		}
	}
	b, _ := t.schemaBlockOf(e.section, e.nameWithoutBraces())
	if volume := cmp.Or(t.volumes[e.section], t.volumes[b.Part]); section == "job.group" && volume != "" {
		for text := range strings.SplitSeq(volume, `\n`) {
			w.writeLine("%s", text)
		}
	}
	switch {
	case !last:
		t.writeExample(w, e, asks, depth+1, line)
	case asks && e.isBlock():
		*line = w.lines + 1
		t.writeBlock(w, e)
	case asks:
		*line = w.lines + 1
		w.writeLine("%s = %s", e.name, t.exampleOf(e))
	}
	inner := ""
	if !last {
		inner = path[depth]
	} else if asks {
		inner = e.nameWithoutBraces()
	}
	switch {
	case section == "job" && inner != "group" && inner != "task":
		w.writeLine("group \"g\" {\ntask \"t\" {\ndriver = \"sim\"\n}\n}")
	case section == "job.group" && inner != "task":
		w.writeLine("task \"t\" {\ndriver = \"sim\"\n}")
	}
	w.writeLine("}")
}

// requiredAttributes is all that an entry needs beside it, and further out.
func (t *attributeTable) requiredAttributes(e entry) map[string]string {
	all := map[string]string{}
	for section, needs := range t.outer {
		b, _ := t.schemaBlockOf(e.section, e.nameWithoutBraces())
		if strings.HasPrefix(e.section+".", section+".") || e.isBlock() && b.Part == section {
			maps.Copy(all, needs)
		}
	}
	maps.Copy(all, e.beside)
	return all
}

// labelOfBlock is the name that a block has behind its type.
func (t *attributeTable) labelOfBlock(section, outer, name string) string {
	if section == "job" {
		return ` "j"`
	}
	if b, ok := t.schemaBlockOf(outer, name); !ok || !b.Label {
		return ""
	}
	if l := t.labels[section]; l != "" {
		return " " + l
	}
	return ` "x"`
}

// writeBlock writes the block that an entry is about, with what it cannot do without.
func (t *attributeTable) writeBlock(w *lineWriter, e entry) {
	b, _ := t.schemaBlockOf(e.section, e.nameWithoutBraces())
	w.writeLine("%s%s {", b.Name, t.labelOfBlock(b.Part, e.section, b.Name))
	frame := t.frames[b.Part]
	for _, attr := range slices.Sorted(maps.Keys(frame)) {
		w.writeLine("%s = %s", attr, frame[attr])
	}
	if e.example != "" {
		w.writeLine("%s", strings.ReplaceAll(e.example, "\\n", "\n"))
	}
	w.writeLine("}")
}

// exampleOf is the value that an entry gives its attribute.
func (t *attributeTable) exampleOf(e entry) string {
	if e.example != "" && e.example != "a" {
		return e.example
	}
	a, _ := t.schemaAttrOf(e)
	return map[string]string{
		"text": `"x"`, "a number": "7", "true or false": "true", "a list of text": `["x", "y"]`,
		"a duration": `"7s"`, "a list of numbers": "[7, 8]",
	}[a.Kind]
}

// expectedJSON is what an attribute's example is in the JSON.
func (t *attributeTable) expectedJSON(e entry) (any, error) {
	text := e.json
	if text == "" {
		text = t.exampleOf(e)
		if a, _ := t.schemaAttrOf(e); a.Kind == "a duration" {
			d, err := time.ParseDuration(strings.Trim(text, `"`))
			if err != nil {
				return nil, err
			}
			text = strconv.FormatInt(int64(d), 10)
		}
	}
	var v any
	err := json.Unmarshal([]byte(text), &v)
	return v, err
}

// jsonPathOfEntry is where the JSON of a job has what an entry is about.
func (t *attributeTable) jsonPathOfEntry(e entry) string {
	if at, ok := strings.CutPrefix(e.at, "/"); ok {
		return at
	}
	at, outer := "", ""
	for i, name := range strings.Split(e.section, ".") {
		section := strings.TrimPrefix(outer+"."+name, ".")
		if i > 0 {
			b, _ := t.schemaBlockOf(outer, name)
			at = strings.TrimPrefix(at+"."+b.Key, ".")
			if b.List {
				at += ".0"
			}
			if b.Keyed {
				at += "." + strings.Trim(t.labelOfBlock(section, outer, name), ` "`)
			}
		}
		if t.at[section] != "" {
			at = t.at[section]
		}
		outer = section
	}
	key := e.at
	if key == "" && e.isBlock() {
		b, _ := t.schemaBlockOf(e.section, e.nameWithoutBraces())
		if t.at[b.Part] != "" {
			return t.at[b.Part]
		}
		key = b.Key
	} else if key == "" {
		a, _ := t.schemaAttrOf(e)
		key = a.Key
	}
	return strings.TrimPrefix(at+"."+key, ".")
}

// lookup returns what stands at a path of a tree; nil where there is nothing.
func lookup(tree any, path string) any {
	for _, key := range strings.Split(path, ".") {
		switch v := tree.(type) {
		case map[string]any:
			tree = v[key]
		case []any:
			if i, err := strconv.Atoi(key); err == nil && i < len(v) {
				tree = v[i]
				continue
			}
			return nil
		default:
			return nil
		}
	}
	return tree
}
