package jobspec_test

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/fleet/cron"
	"skerry/fleet/jobspec"
	"skerry/fleet/placement"
	"skerry/fleet/validate"
)

// conformance is where the shared cases lie beside the repository.
const conformance = "../../../shared/conformance"

// Differences that are meant. The reference checks the priority only when a hub is
// there, and it holds the default of one attempt against those who ask for unlimited
// ones.
var (
	stricter = map[string]string{"ok-priority-101-offline": "must be between 1 and 100"}
	kinder   = []string{"legacy-jobspec__test-fixtures__reschedule-job-unlimited.hcl"}
)

// noFile are job files that read another file, which does not lie beside them: the
// text of their templates is not compared.
var noFile = map[string]bool{
	"podman__examples__jobs__nats_group.nomad": true, "podman__examples__jobs__nats_pod.nomad": true,
	"podman__examples__jobs__nats_simple_pod.nomad": true,
}

func withoutTemplateText(j *fleet.Job) {
	for _, g := range j.TaskGroups {
		for _, t := range g.Tasks {
			for i := range t.Templates {
				t.Templates[i].EmbeddedTmpl = ""
			}
		}
	}
}

// TestConformanceCases runs every file of rows F1-F158, each under its number; files
// that have no row are run too.
func TestConformanceCases(t *testing.T) {
	numbers := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| (F\d+) \| ([\w.-]+) \|`).FindAllStringSubmatch(string(mustRead(t, filepath.Join(conformance, "behaviour.md"))), -1) {
		numbers[m[2]] = m[1]
	}
	ran := map[string]bool{}
	for _, row := range mustTable(t, "cases.tsv") {
		ran[row["file"]] = true
		t.Run(strings.TrimSpace(numbers[row["file"]]+" "+row["file"]), func(t *testing.T) {
			path := filepath.Join(conformance, "cases", row["file"])
			golden := filepath.Join(conformance, "cases", strings.TrimSuffix(strings.TrimSuffix(row["file"], ".json"), ".nomad.hcl")+".parsed.json")
			job := checkConformance(t, path, golden, row["parse"] == "ok", row["validate"] == "ok", strings.Fields(row["vars"]))
			if row["validate"] == "ok" && (job == nil || (len(validate.Warnings(job)) > 0) != (row["warnings"] != "")) {
				t.Errorf("warnings %q, and the reference warns: %q", validate.Warnings(job), row["warnings"])
			}
		})
	}
	for file, number := range numbers {
		if !ran[file] {
			t.Errorf("row %s: cases.tsv has no %s", number, file)
		}
	}
}

func TestConformanceJobspecs(t *testing.T) {
	for _, row := range mustTable(t, "jobspecs.tsv") {
		t.Run(row["file"], func(t *testing.T) {
			path := filepath.Join(conformance, "jobspecs", row["file"])
			var vars []string
			for _, name := range strings.FieldsFunc(row["needs_vars"], func(r rune) bool { return r == ',' || r == ' ' }) {
				vars = append(vars, name+"=x")
			}
			checkConformance(t, path, path+".json", row["expected_parse"] == "ok", row["expected_validate_offline"] == "ok", vars)
		})
	}
}

// checkConformance holds a file against its manifest and the JSON that the reference
// made of it. A file that uses what is not supported yet must be refused for that
// alone; one that does not must give the very job of the JSON. It returns the job, where
// there is one.
func checkConformance(t *testing.T, path, golden string, parses, valid bool, vars []string) *fleet.Job {
	t.Helper()
	src := mustRead(t, path)
	opts := jobspec.Options{Vars: vars, Files: texts{"*": "text"}}
	job, err := jobspec.Parse(path, src, opts)
	if !parses {
		if err == nil {
			t.Fatal("parsed, and the reference refuses it")
		}
		mustPosition(t, err)
		return nil
	}
	wantJob, problems := mustGolden(t, golden)
	problems = slices.Concat(problems, placement.Problems(wantJob), validate.Job(wantJob), cron.Problems(wantJob, time.Now()))
	valid = valid || slices.Contains(kinder, filepath.Base(path))
	if !valid || len(problems) > 0 {
		if err == nil {
			t.Fatal("accepted, and the reference refuses it")
		}
		if valid {
			t.Fatalf("the reference accepts it: %v", err)
		}
		mustPosition(t, err)
		return nil
	}
	if err != nil {
		t.Fatalf("the reference accepts it:\n%v", err)
	}
	if noFile[filepath.Base(path)] {
		withoutTemplateText(job)
		withoutTemplateText(wantJob)
	}
	if !reflect.DeepEqual(job, wantJob) {
		t.Fatalf("the job differs from the reference's JSON\n got %s\nwant %s", mustJSON(t, job), mustJSON(t, wantJob))
	}
	opts.ForRegistration = true
	_, err = jobspec.Parse(path, src, opts)
	if unsupported := validate.Unsupported(wantJob); (err == nil) != (len(unsupported) == 0) {
		t.Fatalf("registration gave %v, and unsupported are\n%s", err, strings.Join(unsupported.Lines(), "\n"))
	}
	if err != nil {
		mustPosition(t, err)
	}
	return job
}

// TestConformanceJSON reads every JSON job of the reference, also those whose HCL is
// not there.
func TestConformanceJSON(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(conformance, "cases", "*.parsed.json"))
	if err != nil || len(files) < 100 {
		t.Fatalf("only %d files in %s: %v", len(files), conformance, err)
	}
	accepted := 0
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".parsed.json")
		job, problems := mustGolden(t, path)
		problems = slices.Concat(problems, placement.Problems(job), validate.Job(job), cron.Problems(job, time.Now()))
		switch {
		case stricter[name] != "":
			if len(problems) != 1 || !strings.Contains(problems[0].String(), stricter[name]) {
				t.Errorf("%s: want one problem %q, got %v", name, stricter[name], problems.Lines())
			}
		case strings.HasPrefix(name, "inv-") && len(problems) == 0 && !slices.Contains(kinder, name):
			t.Errorf("%s: accepted, and the reference refuses it", name)
		case strings.HasPrefix(name, "ok-") && len(problems) > 0:
			t.Errorf("%s: the reference accepts it: %v", name, problems.Lines())
		case len(problems) == 0:
			accepted++
		}
	}
	if accepted < 15 {
		t.Errorf("only %d jobs of the reference were accepted", accepted)
	}
}

// mustPosition checks that every diagnostic names its place.
func mustPosition(tb testing.TB, err error) {
	tb.Helper()
	var ds jobspec.Diagnostics
	if !errors.As(err, &ds) || len(ds) == 0 {
		tb.Fatalf("not diagnostics: %v", err)
	}
	for _, d := range ds {
		if d.File == "" || d.Message == "" || d.Line == 0 && !strings.HasPrefix(d.File, "-var") {
			tb.Errorf("no position: %+v", d)
		}
	}
	if fleet.CodeOf(err) != fleet.CodeInvalid {
		tb.Errorf("code %s", fleet.CodeOf(err))
	}
}

func mustGolden(tb testing.TB, path string) (*fleet.Job, fleet.Problems) {
	tb.Helper()
	var outer struct{ Job json.RawMessage }
	if err := json.Unmarshal(mustRead(tb, path), &outer); err != nil {
		tb.Fatalf("%s: %v", path, err)
	}
	return validate.DecodeJob(outer.Job)
}

func mustTable(tb testing.TB, name string) []map[string]string {
	tb.Helper()
	r := csv.NewReader(strings.NewReader(string(mustRead(tb, filepath.Join(conformance, name)))))
	r.Comma, r.FieldsPerRecord = '\t', -1
	rows, err := r.ReadAll()
	if err != nil || len(rows) < 2 {
		tb.Fatalf("%s: %d rows, %v", name, len(rows), err)
	}
	var out []map[string]string
	for _, row := range rows[1:] {
		m := map[string]string{}
		for i, field := range row {
			m[rows[0][i]] = field
		}
		out = append(out, m)
	}
	return out
}

func mustRead(tb testing.TB, path string) []byte {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func mustJSON(tb testing.TB, v any) string {
	tb.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}
