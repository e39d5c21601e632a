package console_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"skerry/cmd/console"
)

// openOutput is an output that the flags of a command line shape.
func openOutput(t *testing.T, args ...string) (*console.Output, *strings.Builder) {
	t.Helper()
	out, text := &console.Output{}, &strings.Builder{}
	flags := pflag.NewFlagSet("p", pflag.ContinueOnError)
	out.AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := out.Open(text); err != nil {
		t.Fatal(err)
	}
	return out, text
}

func TestOutputForms(t *testing.T) {
	value := struct{ Name string }{"shop"}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{nil, "Job \"shop\" runs\n"},
		{[]string{"--json"}, "{\n  \"Name\": \"shop\"\n}\n"},
		{[]string{"-t", "it is {{.Name}}"}, "it is shop\n"},
	} {
		out, text := openOutput(t, tc.args...)
		out.Say(value, "Job %q runs", value.Name)
		if err := out.Close(nil); err != nil || text.String() != tc.want {
			t.Errorf("%v: got %q, %v, want %q", tc.args, text, err, tc.want)
		}
	}
}

// TestOutputClose checks which error a command ends with.
func TestOutputClose(t *testing.T) {
	failed, exit := errors.New("no hub answers"), &console.ExitError{Code: 2, Err: errors.New("it waits")}
	for _, tc := range []struct {
		template string
		err      error
		want     string
	}{
		{"{{.Name}}", nil, ""},
		{"{{.Name}}", exit, "it waits"},
		{"{{.Nonesuch}}", nil, "use the template"},
		{"{{.Nonesuch}}", exit, "use the template"}, // else the exit code would say that all is well
		{"{{.Nonesuch}}", failed, "no hub answers"},
	} {
		out, _ := openOutput(t, "-t", tc.template)
		out.JSON(struct{ Name string }{"shop"})
		if err := out.Close(tc.err); tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s after %v: %v, want %q", tc.template, tc.err, err, tc.want)
		}
	}
}

// fullDisk refuses to be written to.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space is left") }

func TestOutputKeepsTheFirstError(t *testing.T) {
	out := &console.Output{Writer: fullDisk{}}
	out.Line("one line")
	table := console.NewTable()
	table.Add("Name", "shop")
	out.Table(table)
	if err := out.Close(nil); err == nil || err.Error() != "no space is left" {
		t.Errorf("got %v", err)
	}
}

func TestPairs(t *testing.T) {
	var b strings.Builder
	table := console.NewTable()
	table.AddSet("Nothing", "")
	table.AddSet("Zero", 0)
	table.AddSet("Description", "a shop")
	table.AddMap("Meta ", map[string]string{"b": "2", "a": "1"})
	(&console.Output{Writer: &b}).Table(table)
	if want := "Description  a shop\nMeta a       1\nMeta b       2\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func TestList(t *testing.T) {
	type item struct{ namespace, name string }
	list := console.List[item]{
		None: "There are none.", Heads: []string{"NAME"},
		Row:       func(i item) []any { return []any{i.name} },
		Namespace: func(i item) string { return i.namespace },
	}
	for _, tc := range []struct {
		all   bool
		items []item
		want  string
	}{
		{false, nil, "There are none.\n"},
		{false, []item{{"ships", "nav"}}, "NAME\nnav\n"},
		{true, []item{{"ships", "nav"}}, "NAMESPACE  NAME\nships      nav\n"},
	} {
		var b strings.Builder
		list.Write(&console.Output{Writer: &b, AllNamespaces: tc.all}, tc.items)
		if b.String() != tc.want {
			t.Errorf("all namespaces %v, %v: got %q, want %q", tc.all, tc.items, b.String(), tc.want)
		}
	}
}
