package console_test

import (
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"skerry/cmd/console"
	"skerry/fleet"
)

// fakeProgram is a tree of commands that notes what the innermost was given.
type fakeProgram struct {
	root   *cobra.Command
	vars   []string
	follow bool
	addr   string
	args   []string
}

func newFakeProgram() *fakeProgram {
	p := &fakeProgram{root: &cobra.Command{Use: "p", SilenceUsage: true, SilenceErrors: true}}
	job := &cobra.Command{Use: "job"}
	job.PersistentFlags().StringVar(&p.addr, "addr", "", "")
	run := &cobra.Command{Use: "run FILE", Args: cobra.ExactArgs(1), RunE: func(_ *cobra.Command, args []string) error {
		p.args = args
		return nil
	}}
	run.Flags().StringArrayVar(&p.vars, "var", nil, "")
	run.Flags().BoolVarP(&p.follow, "follow", "f", false, "")
	exec := &cobra.Command{
		Use: "exec ID COMMAND", Annotations: map[string]string{console.Foreign: ""},
		RunE: func(_ *cobra.Command, args []string) error { p.args = args; return nil },
	}
	exec.Flags().SetInterspersed(false)
	exec.Flags().StringArrayVar(&p.vars, "var", nil, "")
	exec.Flags().BoolVarP(&p.follow, "follow", "f", false, "")
	job.AddCommand(run, exec)
	p.root.AddCommand(job)
	p.root.SetOut(io.Discard)
	return p
}

func (p *fakeProgram) runWithArgs(args ...string) error {
	console.Prepare(p.root, args)
	return p.root.Execute()
}

func TestFlagsWithOneDash(t *testing.T) {
	for text, want := range map[string]fakeProgram{
		"job run -var a=1 -var=b=2 x":   {vars: []string{"a=1", "b=2"}, args: []string{"x"}},
		"job run --var a=1 x -f":        {vars: []string{"a=1"}, args: []string{"x"}, follow: true},
		"job -addr here run -follow x":  {addr: "here", follow: true, args: []string{"x"}},
		"job run -addr=here -- -var":    {addr: "here", args: []string{"-var"}},
		"job run -follow=false -f=0 -":  {args: []string{"-"}},
		"job run x --addr there":        {addr: "there", args: []string{"x"}},
		"job run -var -weird=1 -f file": {vars: []string{"-weird=1"}, follow: true, args: []string{"file"}},

		"job exec -var a=1 -follow id ls -var -follow": {vars: []string{"a=1"}, follow: true, args: []string{"id", "ls", "-var", "-follow"}},
		"job -addr here exec -f id -var":               {addr: "here", follow: true, args: []string{"id", "-var"}},
		"job exec -var=a=1 -- -var":                    {vars: []string{"a=1"}, args: []string{"-var"}},
	} {
		t.Run(text, func(t *testing.T) {
			p := newFakeProgram()
			if err := p.runWithArgs(strings.Fields(text)...); err != nil {
				t.Fatal(err)
			}
			p.root, want.root = nil, nil
			if !reflect.DeepEqual(*p, want) {
				t.Fatalf("got %+v, want %+v", *p, want)
			}
		})
	}
}

func TestMisuseSaysTheUsage(t *testing.T) {
	for text, want := range map[string]string{
		"job run":           "accepts 1 arg",
		"job run a b":       "received 2",
		"job run -volume x": "unknown shorthand flag",
		"job run --what x":  "unknown flag: --what",
		"job what":          `unknown command "what" for "p job"`,
	} {
		t.Run(text, func(t *testing.T) {
			err := newFakeProgram().runWithArgs(strings.Fields(text)...)
			e := fleet.AsError(err)
			if e == nil || e.Code != fleet.CodeInvalid || !strings.Contains(e.Message, want) || !strings.Contains(e.Hint, "usage: p job") {
				t.Fatalf("got %+v, want %q and the usage", e, want)
			}
		})
	}
	if err := newFakeProgram().runWithArgs("job"); err != nil {
		t.Fatalf("a group alone shows its help: %v", err)
	}
}

func FuzzPrepare(f *testing.F) {
	f.Add("job\x00run\x00-var\x00a=1\x00x")
	f.Add("-\x00--\x00-=")
	f.Add("job\x00-addr")
	f.Fuzz(func(t *testing.T, line string) {
		p := newFakeProgram()
		if err := p.runWithArgs(strings.Split(line, "\x00")...); err == nil && len(p.args) > 1 {
			t.Fatalf("run takes one argument, not %q", p.args)
		}
	})
}
