package jobspec_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/fleet/jobspec"
	"skerry/fleet/validate"
)

// TestAttributesAreAllThere fails for what the parser knows and the table does not, and the
// other way around.
func TestAttributesAreAllThere(t *testing.T) {
	table := mustAttributes(t)
	said := map[string]bool{}
	for _, e := range table.entries {
		said[e.section+" "+e.name] = true
		_, attr := table.schemaAttrOf(e)
		_, block := table.schemaBlockOf(e.section, e.nameWithoutBraces())
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
			src, line := table.exampleFile(e, true)
			opts := jobspec.Options{}
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
			warnings := strings.Join(validate.Warnings(job), "\n")
			switch e.outcome {
			case "refused":
				checkRefusal(t, e, err, line)
			case "within":
				if err == nil {
					t.Errorf("it is taken:\n%s", src)
				}
			case "warned":
				if err != nil || !strings.Contains(warnings, e.nameWithoutBraces()) {
					t.Errorf("%v, warnings %q: nothing says that %s is ignored", err, warnings, e.nameWithoutBraces())
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
			asked[index.ReplaceAllString(table.jsonPathOfEntry(e), "")] = true
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
	if len(ds) != 1 || ds[0].Line != line || ds[0].Hint == "" || !strings.Contains(ds[0].Message, e.nameWithoutBraces()) {
		t.Errorf("%v: want one refusal, of line %d, that names %s and says what to do", err, line, e.nameWithoutBraces())
	}
}

// checkJSON holds the JSON of a job against what an entry says of it.
func (table *attributeTable) checkJSON(t *testing.T, e entry, job *fleet.Job) {
	t.Helper()
	if e.at == "-" {
		return
	}
	at := table.jsonPathOfEntry(e)
	got := lookup(mustTree(t, job), at)
	if e.isBlock() {
		if got == nil {
			t.Errorf("the job's JSON has nothing at %s", at)
		}
		return
	}
	want, err := table.expectedJSON(e)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s is %v in the job's JSON, want %v", at, got, want)
	}
	src, _ := table.exampleFile(e, false)
	plain, err := jobspec.Parse("job.hcl", []byte(src), jobspec.Options{})
	if e.byDefault == "-" {
		return
	}
	if e.byDefault == "needed" {
		without := e
		without.beside = maps.Clone(e.beside)
		without.beside[e.section+"."+e.name] = ""
		src, _ := table.exampleFile(without, false)
		if _, err := jobspec.Parse("job.hcl", []byte(src), jobspec.Options{}); err == nil {
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
	at := table.jsonPathOfEntry(e)
	key := at[strings.LastIndex(at, ".")+1:]
	speaks := regexp.MustCompile(`(?i)\b(` + regexp.QuoteMeta(e.nameWithoutBraces()) + `|` + regexp.QuoteMeta(key) + `)\b`)
	for _, name := range e.tests {
		switch text, ok := shown[name]; {
		case !ok:
			t.Errorf("there is no test %s", name)
		case !speaks.MatchString(text):
			t.Errorf("%s speaks of neither %s nor %s", name, e.nameWithoutBraces(), key)
		}
	}
}
