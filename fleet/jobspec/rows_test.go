package jobspec_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/fleet/diff"
	"skerry/fleet/jobspec"
	"skerry/fleet/validate"
)

// parts are a job file's ends, between which a group's content is written.
const (
	before = "job \"j\" {\n group \"g\" {\n"
	task   = "task \"t\" {\n driver = \"raw_exec\"\n config {\n command = \"x\"\n }\n }\n"
	after  = "}\n}\n"
)

// TestParserSemantics holds the parser against what the table says of it: each case is
// a job file, and what of the job to look at.
func TestParserSemantics(t *testing.T) {
	inTask := func(s string) string {
		return before + "task \"t\" {\n driver = \"raw_exec\"\n" + s + "\n}\n" + after
	}
	for _, c := range []struct {
		row, src string
		opts     jobspec.Options
		look     func(j *fleet.Job) any
		want     string // as %v; after "!": part of the error
	}{
		{"F160 flags win over files, files over the environment", "variable \"a\" {}\nvariable \"b\" {}\nvariable \"c\" {}\n" + before + "meta {\n a = var.a\n b = var.b\n c = var.c\n}\n" + task + after,
			jobspec.Options{
				Environ:  []string{"NOMAD_VAR_a=env", "NOMAD_VAR_b=env", "NOMAD_VAR_c=env"},
				VarFiles: []jobspec.File{{Name: "v.hcl", Src: []byte("a = \"file\"\nb = \"file\"\n")}}, Vars: []string{"a=flag"},
			},
			func(j *fleet.Job) any { return j.TaskGroups[0].Meta }, "map[a:flag b:file c:env]"},
		{"F160 a value for no variable", before + task + after, jobspec.Options{Vars: []string{"x=1"}}, nil, `!variable "x" is not declared`},
		{"F161 what only a node knows is left as it is", before + "meta {\n a = \"${attr.kernel.name}-${NOMAD_ALLOC_ID}\"\n b = meta.x\n c = \"${env[\"HOME\"]}\"\n}\n" + task + after, jobspec.Options{},
			func(j *fleet.Job) any { return j.TaskGroups[0].Meta }, `map[a:${attr.kernel.name}-${NOMAD_ALLOC_ID} b:${meta.x} c:${env["HOME"]}]`},
		{"F162 functions, locals, for, conditions, dynamic blocks", "locals {\n names = [for n in [\"x\", \"y\"] : upper(n)]\n}\njob \"j\" {\n dynamic \"group\" {\n for_each = local.names\n iterator = it\n labels = [it.value]\n content {\n count = it.value == \"X\" ? 2 : 1\n network {\n dynamic \"port\" {\n for_each = [\"a\", \"b\"]\n labels = [\"${port.value}-${it.key}\"]\n content {}\n }\n }\n" + task + "}\n}\n}\n", jobspec.Options{},
			func(j *fleet.Job) any {
				var out []string
				for _, g := range j.TaskGroups {
					out = append(out, fmt.Sprint(g.Name, g.Count, g.Networks[0].DynamicPorts[1].Label))
				}
				return out
			}, "[X2b-0 Y1b-1]"},
		{"F163 files are read where they can be", before + "meta {\n a = file(\"x\")\n}\n" + task + after, jobspec.Options{}, nil, "!files cannot be read here"},
		{"F163 files are read by the command line", before + "meta {\n a = file(\"x\")\n}\n" + task + after,
			jobspec.Options{Files: texts{"x": "text of x"}},
			func(j *fleet.Job) any { return j.TaskGroups[0].Meta["a"] }, "text of x"},
		{"F164 a map as a block", inTask("env {\n A = 1\n}"), jobspec.Options{}, func(j *fleet.Job) any { return j.TaskGroups[0].Tasks[0].Env }, "map[A:1]"},
		{"F164 a map as an attribute", inTask("env = { A = 1 }"), jobspec.Options{}, func(j *fleet.Job) any { return j.TaskGroups[0].Tasks[0].Env }, "map[A:1]"},
		{"F164 a list is no map", inTask("env = [1]"), jobspec.Options{}, nil, "!env must be a map"},
		{"F164 two of them", inTask("env {}\nenv {}"), jobspec.Options{}, nil, "!only one env block"},
		{"F165 short and long forms of a constraint", before + "constraint {\n attribute = \"${attr.a}\"\n version = \">= 1\"\n}\nconstraint {\n distinct_hosts = true\n}\nconstraint {\n distinct_property = \"${meta.rack}\"\n value = \"2\"\n}\n" + task + after, jobspec.Options{},
			func(j *fleet.Job) any { return fmt.Sprintf("%+v", j.TaskGroups[0].Constraints) },
			"[${attr.a} version >= 1 distinct_hosts ${meta.rack} distinct_property 2]"},
		{"F166, I23: durations, and bare numbers as nanoseconds", inTask("kill_timeout = 5000000000\nshutdown_delay = \"1h30m\""), jobspec.Options{},
			func(j *fleet.Job) any {
				t := j.TaskGroups[0].Tasks[0]
				return []time.Duration{t.KillTimeout, t.ShutdownDelay}
			}, "[5s 1h30m0s]"},
		{"F167 a group's update is merged into the job's", "job \"j\" {\n update {\n max_parallel = 3\n canary = 1\n }\n group \"g\" {\n update {\n canary = 2\n }\n" + task + after, jobspec.Options{},
			func(j *fleet.Job) any {
				u := j.TaskGroups[0].Update
				return []any{u.MaxParallel, u.Canary, u.HealthyDeadline}
			}, "[3 2 5m0s]"},
		{"F167 a job's vault is its tasks'", "job \"j\" {\n vault {\n role = \"r\"\n }\n group \"g\" {\n" + task + after, jobspec.Options{},
			func(j *fleet.Job) any { return j.TaskGroups[0].Tasks[0].Vault.Role }, "r"},
		{"F168 id and name beside the label", "job \"a\" {\n id = \"b\"\n name = \"c\"\n group \"g\" {\n" + task + after, jobspec.Options{},
			func(j *fleet.Job) any { return []any{j.ID, j.Name} }, "[b c]"},
		{"F169 HCL's JSON syntax", `{"job": {"j": {"group": {"g": {"count": 4, "task": {"t": {"driver": "raw_exec"}}}}}}}`, jobspec.Options{},
			func(j *fleet.Job) any { return []any{j.ID, j.TaskGroups[0].Count} }, "[j 4]"},
		{"F170 unknown blocks", before + "bogus {}\n" + task + after, jobspec.Options{}, nil, `!f.hcl:3:1: unknown block "bogus"`},
		{"F170 unknown arguments", before + "cuont = 1\n" + task + after, jobspec.Options{}, nil, `!f.hcl:3:1: unknown attribute "cuont" (did you mean count?)`},
		{"F170 extra labels", before + "task \"a\" \"b\" {\n driver = \"sim\"\n}\n" + after, jobspec.Options{}, nil, "!f.hcl:3:1: a task has one name, not 2"},
		{"F171 services of one name and port", before + "network {\n port \"p\" {}\n}\nservice {\n name = \"s\"\n port = \"p\"\n}\nservice {\n name = \"s\"\n port = \"p\"\n}\n" + task + after, jobspec.Options{}, nil, `!service "s" is defined twice`},
		{"F171 a name that is known at run time", before + "service {\n name = \"s-${NOMAD_ALLOC_INDEX}\"\n}\n" + task + after, jobspec.Options{},
			func(j *fleet.Job) any { return j.TaskGroups[0].Services[0].Name }, "s-${NOMAD_ALLOC_INDEX}"},
		{"F172 heredocs", inTask("template {\n destination = \"local/x\"\n data = <<EOF\n  a {{ env \"B\" }}\nEOF\n}\ntemplate {\n destination = \"local/y\"\n data = <<-EOF\n    a\n      b\n  EOF\n}"), jobspec.Options{},
			func(j *fleet.Job) any {
				ts := j.TaskGroups[0].Tasks[0].Templates
				return fmt.Sprintf("%q %q", ts[0].EmbeddedTmpl, ts[1].EmbeddedTmpl)
			}, `"  a {{ env \"B\" }}\n" "a\n  b\n"`},
		{"F43, I22: a group's service on a port that nobody declares", before + "service {\n name = \"s\"\n port = \"nosuch\"\n}\n" + task + after, jobspec.Options{},
			func(j *fleet.Job) any { return j.TaskGroups[0].Services[0].PortLabel }, "nosuch"},
		{"F46, I22: a volume of an unknown type", before + "volume \"d\" {\n type = \"floppy\"\n source = \"a\"\n}\n" + task + after, jobspec.Options{},
			func(j *fleet.Job) any { return j.TaskGroups[0].Volumes["d"].Type }, "floppy"},
		{"F174 priorities out of range", "job \"j\" {\n priority = 101\n group \"g\" {\n" + task + after, jobspec.Options{}, nil, "!must be between 1 and 100"},
		{"F174 more than 50000", before + "count = 50001\n" + task + after, jobspec.Options{}, nil, "!50001 is more than 50000"},
	} {
		t.Run(c.row, func(t *testing.T) {
			job, err := jobspec.Parse("f.hcl", []byte(c.src), c.opts)
			if part, isError := strings.CutPrefix(c.want, "!"); isError {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Fatalf("got %v, want %s", err, part)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(c.look(job)); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// F173: a job as JSON has Nomad's names, durations in nanoseconds, and null for what is
// not set; read again it is the same job.
func TestJobAsJSON(t *testing.T) {
	job, err := jobspec.Parse("f.hcl", []byte(before+task+after), jobspec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	text := mustJSON(t, job)
	for _, part := range []string{`"KillTimeout": 5000000000`, `"Periodic": null`, `"TaskGroups": [`} {
		if !strings.Contains(text, part) {
			t.Errorf("%s is not there: %s", part, text)
		}
	}
	again, problems := validate.DecodeJob([]byte(text))
	if d := diff.Jobs(job, again); len(problems) > 0 || d.Type != diff.None {
		t.Errorf("%v, %+v", problems.Lines(), d)
	}
}

// TestLargeFiles gives what no job file has: each is refused clearly, and soon.
func TestLargeFiles(t *testing.T) {
	var circle strings.Builder
	for i := range 200 {
		fmt.Fprintf(&circle, "l%d = local.l%d\n", i, (i+1)%200)
	}
	for name, c := range map[string]struct{ src, want string }{
		"10 MB":            {"# " + strings.Repeat("x", 10<<20) + "\n" + before + task + after, "at most"},
		"10,000 groups":    {"job \"j\" {\n" + strings.Repeat("group \"g\" {}\n", 10_000) + "}\n", "10000 groups: at most 1000"},
		"recursive locals": {"locals {\n" + circle.String() + "}\n" + before + task + after, "refers to itself in a circle"},
		"10,000 dynamic":   {"job \"j\" {\n dynamic \"group\" {\n for_each = range(10000)\n labels = [\"g${group.key}\"]\n content {}\n}\n}\n", "more than 1024 values"},
	} {
		if _, err := jobspec.Parse("f.hcl", []byte(c.src), jobspec.Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %.300v, want %s", name, err, c.want)
		}
	}
}
