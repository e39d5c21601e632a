package jobspec_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
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

func (e entry) bare() string { return strings.TrimSuffix(e.name, " {}") }

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

// attr is the schema's word on an entry.
func (t *attributeTable) attr(e entry) (jobspec.SchemaAttr, bool) {
	for _, a := range t.parts[e.section].Attrs {
		if a.Name == e.name {
			return a, true
		}
	}
	return jobspec.SchemaAttr{}, false
}

func (t *attributeTable) block(section, name string) (jobspec.SchemaBlock, bool) {
	for _, b := range t.parts[section].Blocks {
		if b.Name == name {
			return b, true
		}
	}
	return jobspec.SchemaBlock{}, false
}

// writer writes a job file, and counts its lines.
type writer struct {
	strings.Builder
	lines int
}

func (w *writer) emit(format string, args ...any) {
	fmt.Fprintf(w, format+"\n", args...)
	w.lines++
}

// file writes a job file that asks for what an entry is about, or only for what there must
// be around it; line is where it stands.
func (t *attributeTable) file(e entry, asks bool) (src string, line int) {
	var w writer
	t.write(&w, e, asks, 1, &line)
	return w.String(), line
}

// write writes the block at a depth of the path to an entry, and what is in it.
func (t *attributeTable) write(w *writer, e entry, asks bool, depth int, line *int) {
	path := strings.Split(e.section, ".")
	section, last := strings.Join(path[:depth], "."), depth == len(path)
	frame := maps.Clone(t.frames[section])
	for at, value := range t.around(e) {
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
	w.emit("%s%s {", path[depth-1], t.label(section, strings.Join(path[:depth-1], "."), path[depth-1]))
	for _, attr := range slices.Sorted(maps.Keys(frame)) {
		if frame[attr] != "" {
			w.emit("%s = %s", attr, frame[attr])
		}
	}
	b, _ := t.block(e.section, e.bare())
	if volume := cmp.Or(t.volumes[e.section], t.volumes[b.Part]); section == "job.group" && volume != "" {
		for text := range strings.SplitSeq(volume, `\n`) {
			w.emit("%s", text)
		}
	}
	switch {
	case !last:
		t.write(w, e, asks, depth+1, line)
	case asks && e.isBlock():
		*line = w.lines + 1
		t.writeBlock(w, e)
	case asks:
		*line = w.lines + 1
		w.emit("%s = %s", e.name, t.exampleOf(e))
	}
	inner := ""
	if !last {
		inner = path[depth]
	} else if asks {
		inner = e.bare()
	}
	switch {
	case section == "job" && inner != "group" && inner != "task":
		w.emit("group \"g\" {\ntask \"t\" {\ndriver = \"sim\"\n}\n}")
	case section == "job.group" && inner != "task":
		w.emit("task \"t\" {\ndriver = \"sim\"\n}")
	}
	w.emit("}")
}

// around is all that an entry needs beside it, and further out.
func (t *attributeTable) around(e entry) map[string]string {
	all := map[string]string{}
	for section, needs := range t.outer {
		b, _ := t.block(e.section, e.bare())
		if strings.HasPrefix(e.section+".", section+".") || e.isBlock() && b.Part == section {
			maps.Copy(all, needs)
		}
	}
	maps.Copy(all, e.beside)
	return all
}

// label is the name that a block has behind its type.
func (t *attributeTable) label(section, outer, name string) string {
	if section == "job" {
		return ` "j"`
	}
	if b, ok := t.block(outer, name); !ok || !b.Label {
		return ""
	}
	if l := t.labels[section]; l != "" {
		return " " + l
	}
	return ` "x"`
}

// writeBlock writes the block that an entry is about, with what it cannot do without.
func (t *attributeTable) writeBlock(w *writer, e entry) {
	b, _ := t.block(e.section, e.bare())
	w.emit("%s%s {", b.Name, t.label(b.Part, e.section, b.Name))
	frame := t.frames[b.Part]
	for _, attr := range slices.Sorted(maps.Keys(frame)) {
		w.emit("%s = %s", attr, frame[attr])
	}
	if e.example != "" {
		w.emit("%s", strings.ReplaceAll(e.example, "\\n", "\n"))
	}
	w.emit("}")
}

// exampleOf is the value that an entry gives its attribute.
func (t *attributeTable) exampleOf(e entry) string {
	if e.example != "" && e.example != "a" {
		return e.example
	}
	a, _ := t.attr(e)
	return map[string]string{
		"text": `"x"`, "a number": "7", "true or false": "true", "a list of text": `["x", "y"]`,
		"a duration": `"7s"`, "a list of numbers": "[7, 8]",
	}[a.Kind]
}

// becomes is what an attribute's example is in the JSON.
func (t *attributeTable) becomes(e entry) (any, error) {
	text := e.json
	if text == "" {
		text = t.exampleOf(e)
		if a, _ := t.attr(e); a.Kind == "a duration" {
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

// within is where the JSON of a job has what an entry is about.
func (t *attributeTable) within(e entry) string {
	if at, ok := strings.CutPrefix(e.at, "/"); ok {
		return at
	}
	at, outer := "", ""
	for i, name := range strings.Split(e.section, ".") {
		section := strings.TrimPrefix(outer+"."+name, ".")
		if i > 0 {
			b, _ := t.block(outer, name)
			at = strings.TrimPrefix(at+"."+b.Key, ".")
			if b.List {
				at += ".0"
			}
			if b.Keyed {
				at += "." + strings.Trim(t.label(section, outer, name), ` "`)
			}
		}
		if t.at[section] != "" {
			at = t.at[section]
		}
		outer = section
	}
	key := e.at
	if key == "" && e.isBlock() {
		b, _ := t.block(e.section, e.bare())
		if t.at[b.Part] != "" {
			return t.at[b.Part]
		}
		key = b.Key
	} else if key == "" {
		a, _ := t.attr(e)
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

// TestAttributesAreAllThere fails for what the parser knows and the table does not, and the
// other way around.
func TestAttributesAreAllThere(t *testing.T) {
	table := mustAttributes(t)
	said := map[string]bool{}
	for _, e := range table.entries {
		said[e.section+" "+e.name] = true
		_, attr := table.attr(e)
		_, block := table.block(e.section, e.bare())
		if e.isBlock() && !block || !e.isBlock() && !attr {
			t.Errorf("attributes.txt:%d: the parser knows no %s in %s", e.line, e.name, e.section)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(table.parts)) {
		p := table.parts[path]
		if _, ok := table.frames[path]; !ok && len(p.Attrs)+len(p.Blocks) > 0 {
			t.Errorf("attributes.txt has no section [%s]", path)
		}
		for _, a := range p.Attrs {
			if !said[path+" "+a.Name] {
				t.Errorf("attributes.txt says nothing of %s in [%s]: what becomes of a job that asks for it?", a.Name, path)
			}
		}
		for _, b := range p.Blocks {
			if !said[path+" "+b.Name+" {}"] {
				t.Errorf("attributes.txt says nothing of %s {} in [%s]: what becomes of a job that asks for it?", b.Name, path)
			}
		}
	}
	for section := range table.frames {
		if _, ok := table.parts[section]; !ok {
			t.Errorf("attributes.txt: the parser knows no block %s", section)
		}
	}
}

// TestAttributes asks for each attribute and each block, one by one: it must be in the job's
// JSON by Nomad's name, with its default where nothing is said, and what the table says must
// become of it.
func TestAttributes(t *testing.T) {
	table, shown := mustAttributes(t), mustShown(t)
	for _, e := range table.entries {
		t.Run(fmt.Sprintf("%s %s %s", e.section, e.name, e.example), func(t *testing.T) {
			src, line := table.file(e, true)
			opts := jobspec.Options{Drivers: []string{"sim"}}
			job, err := jobspec.Parse("job.hcl", []byte(src), opts)
			if e.outcome == "invalid" {
				checkRefusal(t, e, err, line)
				return
			}
			if err != nil {
				t.Fatalf("it does not parse: %v\n%s", err, src)
			}
			table.checkJSON(t, e, job)
			opts.ForRegistration = true
			_, err = jobspec.Parse("job.hcl", []byte(src), opts)
			warnings := strings.Join(job.Warnings(), "\n")
			switch e.outcome {
			case "refused":
				checkRefusal(t, e, err, line)
			case "within":
				if err == nil {
					t.Errorf("it is taken:\n%s", src)
				}
			case "warned":
				if err != nil || !strings.Contains(warnings, e.bare()) {
					t.Errorf("%v, warnings %q: nothing says that %s is ignored", err, warnings, e.bare())
				}
			default:
				if err != nil || strings.Contains(warnings, " is ignored") {
					t.Errorf("%v, warnings %q\n%s", err, warnings, src)
				}
			}
			checkShown(t, table, e, shown)
		})
	}
}

// notFromFiles are fields of a job that no attribute sets: what the hub itself writes, what
// says where the job comes from, what HCL says by blocks or labels, and what is always the
// same.
var notFromFiles = []string{
	"Stop", "Stable", "Status", "StatusDescription", "Version", "VersionTag", "SubmitTime", "SpecHash", "CreateIndex", "ModifyIndex", "JobModifyIndex",
	"ParentID", "Dispatched", "DispatchIdempotencyToken", "Payload", "Ignored", "ConsulNamespace", "VaultNamespace",
	"TaskGroups.Tasks.ScalingPolicies.Type", "Periodic.SpecType", "TaskGroups.Tasks.Templates.Wait",
}

// TestEveryFieldOfAJobIsAsked fails for what a job can hold and no attribute of the table
// sets.
func TestEveryFieldOfAJobIsAsked(t *testing.T) {
	table := mustAttributes(t)
	asked := map[string]bool{}
	index := regexp.MustCompile(`\.(\d+|x)\b`)
	for _, e := range table.entries {
		if e.at != "-" {
			asked[index.ReplaceAllString(table.within(e), "")] = true
		}
	}
	var walk func(v reflect.Type, path string)
	walk = func(v reflect.Type, path string) {
		switch v.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(v.Elem(), path)
		case reflect.Struct:
			for i := range v.NumField() {
				f := v.Field(i)
				if f.Anonymous {
					walk(f.Type, path)
					continue
				}
				at := strings.TrimPrefix(path+"."+f.Name, ".")
				if !slices.Contains(notFromFiles, at) {
					walk(f.Type, at)
				}
			}
		default:
			name := path[strings.LastIndex(path, ".")+1:]
			// A block's name is its label, and conditions and identities are one kind each.
			if !asked[path] && !slices.Contains([]string{"ID", "Name", "Label"}, name) && !sharedKind(path) {
				t.Errorf("no attribute in attributes.txt sets %s", path)
			}
		}
	}
	walk(reflect.TypeFor[fleet.Job](), "")
}

// sharedKind reports whether a path is within a kind of block whose section stands at
// another place.
func sharedKind(path string) bool {
	for _, kind := range []string{"Constraints", "Affinities", "Spreads", "Services", "Identity", "Identities", "Networks", "RestartPolicy", "Consul", "Scaling", "SpreadTarget"} {
		if strings.Contains("."+path+".", "."+kind+".") {
			return true
		}
	}
	return false
}

// checkRefusal wants one problem, which names what is refused, where it stands, and says
// what to do.
func checkRefusal(t *testing.T, e entry, err error, line int) {
	t.Helper()
	ds, _ := err.(jobspec.Diagnostics)
	if len(ds) != 1 || ds[0].Line != line || ds[0].Hint == "" || !strings.Contains(ds[0].Message, e.bare()) {
		t.Errorf("%v: want one refusal, of line %d, that names %s and says what to do", err, line, e.bare())
	}
}

// checkJSON holds the JSON of a job against what an entry says of it.
func (table *attributeTable) checkJSON(t *testing.T, e entry, job *fleet.Job) {
	t.Helper()
	if e.at == "-" {
		return
	}
	at := table.within(e)
	got := lookup(mustTree(t, job), at)
	if e.isBlock() {
		if got == nil {
			t.Errorf("the job's JSON has nothing at %s", at)
		}
		return
	}
	want, err := table.becomes(e)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s is %v in the job's JSON, want %v", at, got, want)
	}
	src, _ := table.file(e, false)
	plain, err := jobspec.Parse("job.hcl", []byte(src), jobspec.Options{Drivers: []string{"sim"}})
	if e.byDefault == "-" {
		return
	}
	if e.byDefault == "needed" {
		without := e
		without.beside = maps.Clone(e.beside)
		without.beside[e.section+"."+e.name] = ""
		src, _ := table.file(without, false)
		if _, err := jobspec.Parse("job.hcl", []byte(src), jobspec.Options{Drivers: []string{"sim"}}); err == nil {
			t.Errorf("a job without it is taken:\n%s", src)
		}
		return
	}
	if err != nil {
		t.Fatalf("what is around it does not parse by itself: %v\n%s", err, src)
	}
	var byDefault any
	if err := json.Unmarshal([]byte(e.byDefault), &byDefault); err != nil {
		d, durationErr := time.ParseDuration(e.byDefault)
		if durationErr != nil {
			t.Fatalf("default %q: %v", e.byDefault, err)
		}
		byDefault = float64(d)
	}
	if got := lookup(mustTree(t, plain), at); !reflect.DeepEqual(got, byDefault) {
		t.Errorf("where nothing is said, %s is %s, want %s", at, mustJSON(t, got), e.byDefault)
	}
}

func mustTree(tb testing.TB, job *fleet.Job) any {
	tb.Helper()
	var tree any
	if err := json.Unmarshal([]byte(mustJSON(tb, job)), &tree); err != nil {
		tb.Fatal(err)
	}
	return tree
}

// mustShown returns the text of the files in which each test of the repository is, by the
// test's name, and those of scenarios, by the name of their file.
func mustShown(tb testing.TB) map[string]string {
	tb.Helper()
	texts := map[string]string{}
	test := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		scenario := strings.Contains(path, "testdata") && (strings.HasSuffix(path, ".txt") || strings.HasSuffix(path, ".txtar"))
		if !scenario && !strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "attributes.txt") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if scenario {
			rel, err := filepath.Rel(root, path)
			texts[filepath.ToSlash(rel)] = string(src)
			return err
		}
		for _, m := range test.FindAllSubmatch(src, -1) {
			texts[string(m[1])] += string(src)
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return texts
}

// checkShown wants the tests that an entry names to be there, and to speak of it.
func checkShown(t *testing.T, table *attributeTable, e entry, shown map[string]string) {
	t.Helper()
	if (e.outcome == "works") != (len(e.tests) > 0) {
		t.Errorf("outcome %s, shown by %v", e.outcome, e.tests)
	}
	at := table.within(e)
	key := at[strings.LastIndex(at, ".")+1:]
	speaks := regexp.MustCompile(`(?i)\b(` + regexp.QuoteMeta(e.bare()) + `|` + regexp.QuoteMeta(key) + `)\b`)
	for _, name := range e.tests {
		switch text, ok := shown[name]; {
		case !ok:
			t.Errorf("there is no test %s", name)
		case !speaks.MatchString(text):
			t.Errorf("%s speaks of neither %s nor %s", name, e.bare(), key)
		}
	}
}
