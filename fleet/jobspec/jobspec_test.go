package jobspec_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/fleet/jobspec"
	"skerry/fleet/validate"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/*.want anew")

// TestErrors holds every testdata/*.hcl and *.json against the messages beside it.
func TestErrors(t *testing.T) {
	for _, path := range mustTestdata(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			name := filepath.Base(path)
			_, err := jobspec.Parse(name, mustRead(t, path), jobspec.Options{})
			if err == nil {
				t.Fatal("accepted")
			}
			want := path + ".want"
			if *rewrite {
				if err := os.WriteFile(want, []byte(err.Error()+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got := err.Error() + "\n"; got != string(mustRead(t, want)) {
				t.Errorf("got\n%swant\n%s", got, mustRead(t, want))
			}
		})
	}
}

const shop = `
variable "image" {
  type    = string
  default = "web"
}
variable "sites" {
  type    = list(object({ name = string, count = optional(number, 2) }))
  default = [{ name = "north" }, { name = "south", count = 0 }]
}
variable "port" {
  type = number
  validation {
    condition     = var.port > 1023
    error_message = "ports below 1024 are taken"
  }
}
locals {
  greeting = "${upper(local.word)} from ${attr.unique.hostname}"
  word     = "hello"
}
job "shop" {
  type        = "service"
  datacenters = [for n in ["a", "b"] : "dc-${n}"]
  node_pool   = "ships"
  priority    = 70
  meta {
    owner = "ops"
  }
  constraint {
    attribute = "${attr.kernel.name}"
    value     = "linux"
  }
  constraint {
    distinct_hosts = true
  }
  reschedule {
    delay = "10s"
  }
  dynamic "group" {
    for_each = var.sites
    labels   = [group.value.name]
    content {
      count = group.value.count
      disconnect {
        lost_after = "6h"
        replace    = false
        reconcile  = "keep_original"
      }
      restart {
        attempts = 5
      }
      task "serve" {
        driver       = "raw_exec"
        kill_timeout = "20s"
        config {
          command = "/bin/${var.image}"
          args    = ["--listen", ":${var.port}", "--id=${NOMAD_ALLOC_ID}", "${env["HOME"]}", "$${literal}"]
          volume {
            name = "a"
          }
          volume {
            name = "b"
          }
        }
        env {
          GREETING = local.greeting
          NODE     = node.unique.name
          N        = group.key
          TEXT     = <<-EOT
            one {{ two }}
              three
          EOT
        }
        resources {
          cpu    = 20
          memory = 32
        }
        restart {
          mode = "delay"
        }
        logs {
          max_files = 2
        }
      }
    }
  }
}
`

func TestParse(t *testing.T) {
	job := mustParse(t, shop, jobspec.Options{Vars: []string{"port=8080"}})
	if got, want := job.Datacenters, []string{"dc-a", "dc-b"}; !reflect.DeepEqual(got, want) {
		t.Errorf("datacenters %q, want %q", got, want)
	}
	if job.NodePool != "ships" || job.Priority != 70 || job.Type != fleet.JobTypeService || job.Meta["owner"] != "ops" {
		t.Errorf("job %+v", job)
	}
	if want := []fleet.Constraint{
		{LTarget: "${attr.kernel.name}", Operand: "=", RTarget: "linux"}, {Operand: "distinct_hosts", RTarget: "true"},
	}; !reflect.DeepEqual(job.Constraints, want) {
		t.Errorf("constraints %v, want %v", job.Constraints, want)
	}
	if len(job.TaskGroups) != 2 || job.TaskGroups[0].Name != "north" || job.TaskGroups[0].Count != 2 || job.TaskGroups[1].Count != 0 {
		t.Fatalf("groups %+v", job.TaskGroups)
	}
	g := job.TaskGroups[1]
	if g.Disconnect == nil || *g.Disconnect.LostAfter != 6*time.Hour || *g.Disconnect.Replace || g.Disconnect.Reconcile != fleet.ReconcileKeepOriginal {
		t.Errorf("disconnect %+v", g.Disconnect)
	}
	if want := (fleet.ReschedulePolicy{Delay: 10 * time.Second, DelayFunction: "exponential", MaxDelay: time.Hour, Unlimited: true}); *g.ReschedulePolicy != want {
		t.Errorf("reschedule %+v, want %+v", *g.ReschedulePolicy, want)
	}
	task := g.Tasks[0]
	if want := (fleet.RestartPolicy{Attempts: 5, Interval: 30 * time.Minute, Delay: 15 * time.Second, Mode: "delay"}); *task.RestartPolicy != want {
		t.Errorf("restart %+v, want %+v", *task.RestartPolicy, want)
	}
	if want := map[string]any{
		"command": "/bin/web",
		"args":    []any{"--listen", ":8080", "--id=${NOMAD_ALLOC_ID}", `${env["HOME"]}`, "${literal}"},
		"volume":  []any{map[string]any{"name": "a"}, map[string]any{"name": "b"}},
	}; !reflect.DeepEqual(task.Config, want) {
		t.Errorf("config %#v, want %#v", task.Config, want)
	}
	if want := map[string]string{
		"GREETING": "HELLO from ${attr.unique.hostname}", "NODE": "${node.unique.name}", "N": "1",
		"TEXT": "one {{ two }}\n  three\n",
	}; !reflect.DeepEqual(task.Env, want) {
		t.Errorf("env %q, want %q", task.Env, want)
	}
	if task.KillTimeout != 20*time.Second || task.LogConfig != (fleet.LogConfig{MaxFiles: 2, MaxFileSizeMB: 10}) ||
		task.Resources.Resources != (fleet.Resources{CPU: 20, MemoryMB: 32}) {
		t.Errorf("task %+v", task)
	}
}

func TestVariables(t *testing.T) {
	const src = `
variable "a" { default = "default" }
variable "n" {
  type    = number
  default = 1
}
variable "list" {
  type    = list(string)
  default = []
}
job "v" {
  meta {
    a = var.a
    n = var.n
    l = join("+", var.list)
  }
  group "g" {
    task "t" { driver = "raw_exec" }
  }
}`
	file := jobspec.File{Name: "x.vars", Src: []byte("a = \"file\"\nlist = [\"p\", \"q\"]\n")}
	jsonFile := jobspec.File{Name: "x.json", Src: []byte(`{"n": 4}`)}
	environ := []string{"NOMAD_VAR_a=env", "SKERRY_VAR_n=7", "NOMAD_VAR_other=1", "HOME=/"}
	for _, c := range []struct {
		name    string
		opts    jobspec.Options
		a, n, l string
	}{
		{"defaults", jobspec.Options{}, "default", "1", ""},
		{"environment", jobspec.Options{Environ: environ}, "env", "7", ""},
		{"files over environment", jobspec.Options{Environ: environ, VarFiles: []jobspec.File{file, jsonFile}}, "file", "4", "p+q"},
		{"flags over all", jobspec.Options{Environ: environ, VarFiles: []jobspec.File{file}, Vars: []string{"a=one", "a=two=2", `list=["z"]`}}, "two=2", "7", "z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			meta := mustParse(t, src, c.opts).Meta
			if meta["a"] != c.a || meta["n"] != c.n || meta["l"] != c.l {
				t.Errorf("got %q, want %q %q %q", meta, c.a, c.n, c.l)
			}
		})
	}
	for _, c := range []struct {
		opts jobspec.Options
		want string
	}{
		{jobspec.Options{Vars: []string{"b=1"}}, `variable "b" is not declared`},
		{jobspec.Options{Vars: []string{"n=abc"}}, `variable "n": a number is required`},
		{jobspec.Options{Vars: []string{"list=[1,"}}, `-var list:1:`},
		{jobspec.Options{Vars: []string{"a"}}, `"a" is not NAME=VALUE`},
		{jobspec.Options{VarFiles: []jobspec.File{{Name: "f.vars", Src: []byte("\n  lst = []")}}}, `f.vars:2:3: variable "lst" is not declared in job.hcl (did you mean list?)`},
	} {
		_, err := jobspec.Parse("job.hcl", []byte(src), c.opts)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.opts, err, c.want)
		}
	}
}

func TestFile(t *testing.T) {
	const src = `job "f" {
	meta { motd = file("motd") }
	task "t" { driver = "raw_exec" }
}`
	job := mustParse(t, src, jobspec.Options{Files: texts{"motd": "<motd>"}})
	if job.Meta["motd"] != "<motd>" {
		t.Errorf("meta %q", job.Meta)
	}
	if g := job.Group("t"); g == nil || g.Count != 1 || g.Task("t") == nil {
		t.Errorf("a task alone gets no group: %+v", job.TaskGroups)
	}
	_, err := jobspec.Parse("f.hcl", []byte(src), jobspec.Options{})
	if err == nil || !strings.Contains(err.Error(), "f.hcl:2:") || !strings.Contains(err.Error(), "files cannot be read here") {
		t.Errorf("without files: %v", err)
	}
}

// TestJSON reads the API's JSON in each of its wrappings.
func TestJSON(t *testing.T) {
	const bare = `{"ID": "j", "TaskGroups": [{"Name": "g", "Count": null, "Tasks": [{"Name": "t", "Driver": "raw_exec", "KillTimeout": "9s"}]}]}`
	for _, src := range []string{bare, `{"Job": ` + bare + `}`, ` {"job": ` + bare + `}`} {
		job := mustParse(t, src, jobspec.Options{})
		if job.ID != "j" || job.TaskGroups[0].Count != 1 || job.TaskGroups[0].Tasks[0].KillTimeout != 9*time.Second {
			t.Errorf("%s: %+v", src, job)
		}
	}
}

// TestBounds gives what would exhaust a recursive parser.
func TestBounds(t *testing.T) {
	const n = 200_000
	for name, src := range map[string]string{
		"size":        "# " + strings.Repeat("x", fleet.MaxJobSize),
		"lists":       "job \"a\" { meta { a = " + strings.Repeat("[", n),
		"blocks":      strings.Repeat("a {\n", n),
		"parentheses": "job \"a\" { meta { a = " + strings.Repeat("(", n),
		"templates":   "job \"a\" { meta { a = " + strings.Repeat("\"${", n),
		"negations":   "job \"a\" { meta { a = " + strings.Repeat("-", n),
		"conditions":  "job \"a\" { meta { a = " + strings.Repeat("a?", n),
		"sums":        "job \"a\" { meta { a = 1" + strings.Repeat("+1", n),
		"indexes":     "job \"a\" { meta { a = a" + strings.Repeat("[0]", n),
		"exponent":    "job \"a\" { meta { a = \"${1e999999999}\" } }",
		"json":        `{"Job": ` + strings.Repeat("[", n),
		"json syntax": `{"job": {"a": ` + strings.Repeat(`{"a":`, n),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := jobspec.Parse("x.hcl", []byte(src), jobspec.Options{})
			var ds jobspec.Diagnostics
			if !errors.As(err, &ds) || len(ds) != 1 {
				t.Fatalf("%d diagnostics: %.200v", len(ds), err)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(shop))
	f.Add([]byte(`{"job": {"a": {"group": {"g": [{"task": {"t": {"driver": "raw_exec", "config": {"command": "${attr.x}"}}}}]}}}}`))
	f.Add([]byte(`{"Job": {"ID": "j", "TaskGroups": [{"Name": "g"}]}}`))
	for _, path := range mustTestdata(f) {
		f.Add(mustRead(f, path))
	}
	for _, expr := range []string{
		`yamldecode("a: &a {b: 0x1f, 2: yes}\nc: {<<: [*a], d: 1e9}\n--- \n")`, `yamldecode("? !!float \"\\x5f1e9999999\"\n: - - |-\n      x\n")`,
		`yamlencode({ a = "x\n y", b = [1e9, null] })`, `cidrhost("10.0.0.0/8", -1)`, `cidrsubnet("fd00::/8", 32, 9)`,
		`cidrsubnets("10.0.0.0/8", 4, -9999999)`, `rsadecrypt("YQ==", "-----BEGIN RSA PRIVATE KEY-----\nYQ==\n-----END RSA PRIVATE KEY-----\n")`,
		`fileset(".", "**/*.{a,b}")`, `fileexists("~")`,
	} {
		f.Add([]byte("job \"f\" {\n  meta = { v = jsonencode(" + expr + ") }\n  task \"t\" {\n    driver = \"raw_exec\"\n  }\n}\n"))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		job, err := jobspec.Parse("f.hcl", src, jobspec.Options{Vars: []string{"port=8080"}})
		if err == nil {
			if problems := validate.Job(job); len(problems) > 0 {
				t.Errorf("accepted an invalid job: %v", problems.Lines())
			}
			return
		}
		var ds jobspec.Diagnostics
		if !errors.As(err, &ds) || len(ds) == 0 {
			t.Errorf("not diagnostics: %v", err)
		}
	})
}

func mustTestdata(tb testing.TB) []string {
	tb.Helper()
	hcl, _ := filepath.Glob("testdata/*.hcl")
	files, _ := filepath.Glob("testdata/*.json")
	if len(hcl) == 0 || len(files) == 0 {
		tb.Fatal("no testdata")
	}
	return append(hcl, files...)
}

func mustParse(tb testing.TB, src string, opts jobspec.Options) *fleet.Job {
	tb.Helper()
	job, err := jobspec.Parse("job.hcl", []byte(src), opts)
	if err != nil {
		tb.Fatalf("parse:\n%v", err)
	}
	return job
}

// TestJSONVariables reads variables and locals in HCL's JSON syntax.
func TestJSONVariables(t *testing.T) {
	const src = `{"//": "a comment", "variable": {
  "n": {"type": "number", "default": 2, "description": "of {them}", "validation": [{"condition": "${var.n < 5}", "error_message": "Too many: ${var.n}."}]},
  "apps": [{"type": "map(object({cmd = string, args = optional(list(string), [])}))", "default": {"a": {"cmd": "/bin/true"}}}], "plain": {}},
 "variables": {"m": "of ${upper(\"m\")}"}, "locals": [{"x": "${var.n + 1}", "y": "${local.x}-y"}, {"z": {"k": ["${local.y}"]}}],
 "job": {"j": {"meta": {"y": "${local.y}", "z": "${local.z.k[0]}", "p": "${var.plain}", "m": "${var.m}"}, "group": {"g": {"count": "${local.x}", "task": {"t":
  {"driver": "raw_exec", "config": {"command": "${var.apps.a.cmd}", "args": ["${NOMAD_ALLOC_ID}", "${length(var.apps.a.args)}"]}}}}}}}}`
	job := mustParse(t, src, jobspec.Options{Vars: []string{"n=3", "plain=7"}})
	want := `map[m:of M p:7 y:4-y z:4-y] 4 map[args:[${NOMAD_ALLOC_ID} 0] command:/bin/true]`
	if got := fmt.Sprint(job.Meta, " ", job.TaskGroups[0].Count, " ", job.TaskGroups[0].Tasks[0].Config); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	_, err := jobspec.Parse("job.json", []byte(src), jobspec.Options{Vars: []string{"n=7", "plain=7"}})
	if err == nil || !strings.Contains(err.Error(), "Too many: 7.") {
		t.Errorf("beyond what is valid: %v", err)
	}
}

// TestUntypedVariables gives variables without a type values that are like their defaults.
func TestUntypedVariables(t *testing.T) {
	const src = `
variable "number" { default = 3 }
variable "list" { default = [] }
variable "null" { default = null }
variable "none" {}
variable "any" {
  type    = any
  default = {}
}
variables {
  bool = true
  map  = { a = 1 }
}
job "j" {
  meta {
    v = jsonencode([var.number, var.list, var.null, var.none, var.any, var.bool, var.map])
  }
  task "t" {
    driver = "raw_exec"
  }
}
`
	for _, c := range []struct {
		vars []string
		want string
	}{
		{nil, `[3,[],null,"n",{},true,{"a":1}]`},
		{[]string{"number=5", `list=["x"]`, "null=[1]", "none=7", "any=[1,2]", "bool=false", "map={b=[true]}"}, `[5,["x"],"[1]","7",[1,2],false,{"b":[true]}]`},
		{[]string{"list=10.0.0.1", "any=shop", "map=[", `none="q"`}, `[3,"10.0.0.1",null,"\"q\"","shop",true,"["]`},
		{[]string{"number=many"}, `!-var number: the value is no value for variable "number": a number is required`},
		{[]string{"any=[for x in range(10): range(1000)]"}, "!-var any"},
	} {
		job, err := jobspec.Parse("job.hcl", []byte(src), jobspec.Options{Vars: append([]string{"none=n"}, c.vars...)})
		if wrong, fails := strings.CutPrefix(c.want, "!"); fails {
			if err == nil || !strings.Contains(err.Error(), wrong) {
				t.Errorf("%q: %v, want %q", c.vars, err, wrong)
			}
		} else if err != nil || job.Meta["v"] != c.want {
			t.Errorf("%q: %v, want %s, got %+v", c.vars, err, c.want, job)
		}
	}
	job, err := jobspec.Parse("job.hcl", []byte(src), jobspec.Options{Environ: []string{"NOMAD_VAR_none=e", "NOMAD_VAR_number=8"},
		VarFiles: []jobspec.File{{Name: "v.hcl", Src: []byte("list = [1]\nbool = \"false\"\n")}}})
	if err != nil || job.Meta["v"] != `[8,[1],null,"e",{},false,{"a":1}]` {
		t.Errorf("of the environment and a file: %v, %+v", err, job)
	}
}

// TestNullsInMaps leaves out what is null, in blocks and in maps.
func TestNullsInMaps(t *testing.T) {
	for _, meta := range []string{"meta {\n    a = null\n    b = 1\n  }", "meta = { a = null, b = 1 }", "meta = { a = var.none, b = 1 }"} {
		job := mustParse(t, "variable \"none\" {\n  default = null\n}\njob \"j\" {\n  "+meta+"\n  task \"t\" {\n    driver = \"raw_exec\"\n    env = { A = null }\n  }\n}\n", jobspec.Options{})
		if len(job.Meta) != 1 || job.Meta["b"] != "1" || len(job.TaskGroups[0].Tasks[0].Env) != 0 {
			t.Errorf("%s: %q, %q", meta, job.Meta, job.TaskGroups[0].Tasks[0].Env)
		}
	}
}

// TestErrorsAreBounded says a hundred things of a file, and how many more there are.
func TestErrorsAreBounded(t *testing.T) {
	_, err := jobspec.Parse("job.hcl", []byte("job \"j\" {\n"+strings.Repeat("  nothing {}\n", 5000)+"}\n"), jobspec.Options{})
	var ds jobspec.Diagnostics
	if !errors.As(err, &ds) || len(ds) != 101 || ds[100].Message != "and 4901 more like these" {
		t.Errorf("%d errors, the last %v", len(ds), ds[max(0, len(ds)-1)])
	}
}

// TestNow has a job whose last launch is over.
func TestNow(t *testing.T) {
	src := `job "shop" {
  type = "batch"
  periodic { crons = ["0 0 1 1 * 2030"] }
  group "web" {
    task "serve" { driver = "raw_exec" }
  }
}`
	before := time.Date(2029, 6, 1, 0, 0, 0, 0, time.UTC)
	mustParse(t, src, jobspec.Options{Now: before})
	if _, err := jobspec.Parse("job.hcl", []byte(src), jobspec.Options{Now: before.AddDate(2, 0, 0)}); err == nil {
		t.Error("a job that is never launched again was taken")
	}
	over := strings.Replace(src, "2030", "2001", 1)
	mustParse(t, over, jobspec.Options{}) // nobody says what the time is
	if _, err := jobspec.Parse("job.hcl", []byte(strings.Replace(src, "1 1 *", "31 2 *", 1)), jobspec.Options{}); err == nil {
		t.Error("a job that is never launched at all was taken")
	}
}

func ExampleParse() {
	_, err := jobspec.Parse("shop.hcl", []byte(`job "shop" {
  group "web" {
    count = -1
    network {}
    task "serve" {
      drivr = "raw_exec"
    }
  }
}`), jobspec.Options{})
	fmt.Println(err)
	// Output:
	// shop.hcl:3:13: may not be negative: -1
	// shop.hcl:5:5: task "serve" needs a driver
	// shop.hcl:6:7: unknown attribute "drivr" (did you mean driver?)
}

// TestSecretsAreInherited: a secret block of the job or of a group is for the tasks that have none of that name.
func TestSecretsAreInherited(t *testing.T) {
	src := `job "j" {
  secret "a" {
    provider = "nomad"
    path     = "nomad/jobs"
  }
  group "g" {
    secret "b" {
      provider = "nomad"
      path     = "nomad/jobs/j"
    }
    task "own" {
      driver = "sim"
      secret "a" {
        provider = "nomad"
        path     = "nomad/jobs/j/g/own"
      }
      env {
        A = "${secret.a.pin}"
      }
    }
    task "none" {
      driver = "sim"
    }
  }
}`
	job, err := jobspec.Parse("job.hcl", []byte(src), jobspec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"a nomad/jobs/j/g/own, b nomad/jobs/j", "b nomad/jobs/j, a nomad/jobs"} {
		var got []string
		for _, s := range job.TaskGroups[0].Tasks[i].Secrets {
			got = append(got, s.Name+" "+s.Path)
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("task %d has %q, want %q", i, got, want)
		}
	}
	if got := job.TaskGroups[0].Tasks[0].Env["A"]; got != "${secret.a.pin}" {
		t.Errorf("env has %q", got)
	}
}
