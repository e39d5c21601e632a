package console_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"skerry/cmd/console"
	"skerry/fleet"
)

// fakeDaemon is a set of flags of every kind.
type fakeDaemon struct {
	flags *pflag.FlagSet
	name  string
	port  int
	every time.Duration
	on    bool
	hubs  []string
	meta  map[string]string
}

func newFakeDaemon() *fakeDaemon {
	d := &fakeDaemon{flags: pflag.NewFlagSet("d", pflag.ContinueOnError)}
	d.flags.StringVar(&d.name, "node-name", "default", "")
	d.flags.IntVar(&d.port, "port", 1, "")
	d.flags.DurationVar(&d.every, "every", time.Second, "")
	d.flags.BoolVar(&d.on, "on", false, "")
	d.flags.StringSliceVar(&d.hubs, "hub", []string{"default"}, "")
	d.flags.StringToStringVar(&d.meta, "meta", nil, "")
	console.AddConfigFlag(d.flags)
	return d
}

const file = `
node_name = "file"
port      = 2 # a comment
every     = "3s"
on        = true
hub       = ["a:1", "b:2"]
meta      = { site = "north", rack = 7 }
`

func TestComplete(t *testing.T) {
	path := mustWrite(t, file)
	for _, c := range []struct {
		name    string
		args    []string
		environ []string
		want    fakeDaemon
	}{
		{"nothing", nil, []string{"PATH=/bin"}, fakeDaemon{name: "default", port: 1, every: time.Second, hubs: []string{"default"}}},
		{"file", []string{"--config", path}, nil, fakeDaemon{name: "file", port: 2, every: 3 * time.Second, on: true,
			hubs: []string{"a:1", "b:2"}, meta: map[string]string{"site": "north", "rack": "7"}}},
		{"file named by the environment", nil, []string{"SKERRY_CONFIG=" + path}, fakeDaemon{name: "file", port: 2, every: 3 * time.Second, on: true,
			hubs: []string{"a:1", "b:2"}, meta: map[string]string{"site": "north", "rack": "7"}}},
		{"environment over file", []string{"--config=" + path},
			[]string{"SKERRY_NODE_NAME=env", "SKERRY_HUB=c:3,d:4", "SKERRY_META=a=1,b=2", "SKERRY_ON=false", "SKERRY_PORT="},
			fakeDaemon{name: "env", port: 2, every: 3 * time.Second, hubs: []string{"c:3", "d:4"}, meta: map[string]string{"a": "1", "b": "2"}}},
		{"flags over all", []string{"--config=" + path, "--node-name=flag", "--hub=e:5", "--on=false"}, []string{"SKERRY_NODE_NAME=env", "SKERRY_EVERY=9s"},
			fakeDaemon{name: "flag", port: 2, every: 9 * time.Second, hubs: []string{"e:5"}, meta: map[string]string{"site": "north", "rack": "7"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newFakeDaemon()
			if err := d.flags.Parse(c.args); err != nil {
				t.Fatal(err)
			}
			if err := console.CompleteFlags(d.flags, c.environ); err != nil {
				t.Fatal(err)
			}
			d.flags = nil
			if !reflect.DeepEqual(*d, c.want) {
				t.Errorf("got %+v, want %+v", *d, c.want)
			}
		})
	}
}

func TestCompleteProblems(t *testing.T) {
	path := mustWrite(t, "port = \"many\"\nbogus = 1\nhub = [[1]]\nmeta = null\nnode_name = upper(\"x\")\nconfig = \"y\"\n")
	d := newFakeDaemon()
	if err := d.flags.Parse([]string{"--config", path}); err != nil {
		t.Fatal(err)
	}
	err := console.CompleteFlags(d.flags, []string{"SKERRY_EVERY=often"})
	if fleet.CodeOf(err) != fleet.CodeInvalid {
		t.Fatalf("%v", err)
	}
	want := []string{
		`variable SKERRY_EVERY: invalid argument "often"`, path + `:1:1: port: invalid argument "many"`,
		path + `:2:1: unknown setting "bogus"`, path + `:3:1: hub: its elements`, path + `:5:1: `, path + `:6:1: unknown setting "config"`,
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d problems, want %d:\n%v", len(lines), len(want), err)
	}
	for i := range want {
		if !strings.HasPrefix(lines[i], want[i]) {
			t.Errorf("got %q, want %q…", lines[i], want[i])
		}
	}
}

func FuzzComplete(f *testing.F) {
	f.Add(file)
	f.Add("meta = { a = [1] }\nhub = 5")
	f.Fuzz(func(t *testing.T, content string) {
		d := newFakeDaemon()
		if err := d.flags.Parse([]string{"--config", mustWrite(t, content)}); err != nil {
			t.Fatal(err)
		}
		if err := console.CompleteFlags(d.flags, nil); err != nil && fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("%v", err)
		}
	})
}

func mustWrite(tb testing.TB, content string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "config.hcl")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// A command may have another --config: it names no file with settings, and no variable sets it.
func TestAnotherConfigFlag(t *testing.T) {
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	given := flags.String(console.ConfigFlag, "", "")
	if err := console.CompleteFlags(flags, []string{console.EnvName(console.ConfigFlag) + "=settings.hcl"}); err != nil || *given != "" {
		t.Errorf("from the environment: %q, %v", *given, err)
	}
	if err := flags.Parse([]string{"--config", "@none.json"}); err != nil {
		t.Fatal(err)
	}
	if err := console.CompleteFlags(flags, nil); err != nil || *given != "@none.json" {
		t.Errorf("from the command line: %q, %v", *given, err)
	}
}
