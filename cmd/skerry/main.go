// Command skerry is all of Skerry in one program: the hub, the edge, both at once for
// trying it out, and the operator's commands.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/edged"
	"skerry/cmd/hubd"
	"skerry/drivers/rawexec"
	"skerry/fleet"
)

// version is set when the program is linked.
var version = "dev"

func main() {
	rawexec.Supervise() // a supervisor of a task has no use for anything below
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := command()
	console.Prepare(root, os.Args[1:])
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	code := console.Fail(os.Stderr, "skerry", err)
	if text := cmd.Annotations[failsWith]; text != "" && !errors.As(err, new(*console.ExitError)) {
		if code, err = strconv.Atoi(text); err != nil {
			panic(err) // a command says so
		}
	}
	return code
}

// failsWith is the annotation of a command whose exit code is not 1 where it fails,
// since that one says something else.
const failsWith = "fails-with"

// operator is what every operator's command is told, and where it writes.
type operator struct {
	addr      string
	namespace string // "": the one of the job file, or the default
	json      bool
	template  string
	colour    struct{ never, always bool }
	out       *console.Output // nil: nothing is run yet
}

// writeColoured writes what marks its lines, in colours where those are wanted.
func (o *operator) writeColoured(w io.Writer, write func(w io.Writer)) error {
	var text strings.Builder
	write(&text)
	out := text.String()
	if console.HasColours(w) {
		out = console.Marked(out)
	}
	_, err := io.WriteString(w, out)
	return err
}

// wholeIDs is --verbose. One process runs one command: what writes ids need not hand it on.
var wholeIDs bool

// displayID is an id for people: the beginning of it, unless ids are asked for whole.
func displayID[T ~string](id T) string {
	if wholeIDs {
		return string(id)
	}
	return fleet.Short(id)
}

func (o *operator) hubClient() (*client.Client, error) {
	hub, err := client.New(client.Config{Addr: o.addr})
	if err != nil {
		return nil, err
	}
	return hub.In(o.namespace).OnStale(o.noteStale), nil
}

// noteStale says of what is shown that it may be old: beside it once, and in each table.
func (o *operator) noteStale() {
	warnStale()
	if o.out != nil {
		o.out.SetStale(true)
	}
}

// warnStale says once, beside what is shown, that it may be old.
var warnStale = sync.OnceFunc(func() {
	fmt.Fprintln(os.Stderr, "Warning: this hub knows no leader: what it shows may be old")
})

// hubClientFor is client for a job of a file, whose namespace counts where the command
// line names none.
func (o *operator) hubClientFor(job *fleet.Job) (*client.Client, error) {
	hub, err := o.hubClient()
	if err == nil && (o.namespace == "" || o.namespace == fleet.DefaultNamespace) {
		hub = hub.In(job.Namespace)
	}
	return hub, err
}

// withNamespaceCell are those of a row in a list, with the namespace where all are listed.
func (o *operator) withNamespaceCell(namespace string, cells ...any) []any {
	if o.namespace == "*" {
		return append([]any{namespace}, cells...)
	}
	return cells
}

// withNamespaceHead are those of a list whose rows are cells.
func (o *operator) withNamespaceHead(heads ...string) []string {
	if o.namespace == "*" {
		return append([]string{"NAMESPACE"}, heads...)
	}
	return heads
}

// findAlloc finds the allocation of an id that may be abbreviated, and the hub that
// was asked.
func (o *operator) findAlloc(ctx context.Context, id string) (*client.Client, api.AllocStub, error) {
	hub, err := o.hubClient()
	if err != nil {
		return nil, api.AllocStub{}, err
	}
	stub, err := hub.FindAlloc(ctx, id)
	return hub.In(stub.Namespace), stub, err
}

// findNode finds the node of a name, or of an id that may be abbreviated, and the hub that was
// asked.
func (o *operator) findNode(ctx context.Context, ref string) (*client.Client, api.NodeStub, error) {
	hub, err := o.hubClient()
	if err != nil {
		return nil, api.NodeStub{}, err
	}
	stub, err := hub.FindNode(ctx, ref)
	return hub, stub, err
}

// findJob finds the job of an id that may be abbreviated, and the hub that was asked.
func (o *operator) findJob(ctx context.Context, id string) (*client.Client, api.JobStub, error) {
	hub, err := o.hubClient()
	if err != nil {
		return nil, api.JobStub{}, err
	}
	stub, err := hub.FindJob(ctx, id)
	return hub.In(stub.Namespace), stub, err
}

// wholeJob is job where more than the short form is needed.
func (o *operator) wholeJob(ctx context.Context, id string) (*client.Client, *fleet.Job, error) {
	hub, stub, err := o.findJob(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	job, err := hub.Job(ctx, stub.ID)
	return hub, job, err
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use: "skerry", Short: "Run workloads on fleets that lose their link", Version: version,
		SilenceUsage: true, SilenceErrors: true,
	}
	edge := edged.Command("edge", version)
	local := edged.LocalCommand()
	root.AddGroup(&cobra.Group{ID: "daemon", Title: "Daemons:"}, &cobra.Group{ID: "operator", Title: "For operators:"},
		&cobra.Group{ID: "shortcut", Title: "For short:"})
	for _, c := range []*cobra.Command{hubd.Command(version), edge, devCommand()} {
		c.GroupID = "daemon"
		root.AddCommand(c)
	}
	o := &operator{}
	for _, c := range []*cobra.Command{jobCommand(o), fleetCommand(o), nodeCommand(o), allocCommand(o), evalCommand(o), operatorCommand(o), systemCommand(o), deploymentCommand(o), serviceCommand(o), scalingCommand(o), namespaceCommand(o), monitorCommand(o), tokenCommand(o), actionCommand(o)} {
		o.addTo(c)
		c.GroupID = "operator"
		root.AddCommand(c)
	}
	for _, c := range shortcuts(o) {
		o.addTo(c)
		c.GroupID = "shortcut"
		root.AddCommand(c)
	}
	o.addCompletions(root, "")
	local.GroupID = "operator"
	root.AddCommand(local, versionCommand())
	root.SetGlobalNormalizationFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "address" { // as Nomad's commands call it
			name = "addr"
		}
		return pflag.NormalizedName(name)
	})
	addExamples(root)
	return root
}

// addTo gives a group of commands the flags that all of them have.
func (o *operator) addTo(c *cobra.Command) {
	flags := c.PersistentFlags()
	flags.StringVar(&o.addr, "addr", client.DefaultAddr, "address of a hub's HTTP API")
	flags.StringVar(&o.namespace, "namespace", "", "namespace; * is all namespaces, for lists and searches")
	flags.BoolVar(&o.json, "json", false, "write JSON")
	flags.StringVarP(&o.template, "template", "t", "", "format the JSON output with a Go template")
	flags.BoolVarP(&wholeIDs, "verbose", "v", false, "write full ids, and the attributes of a node")
	flags.BoolVar(&o.colour.never, "no-color", false, "no colours, also on a terminal; NO_COLOR in the environment does the same")
	flags.BoolVar(&o.colour.always, "force-color", false, "colours, also if the output is not a terminal")
	console.AddConfigFlag(flags)
	c.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := console.CompleteFlags(cmd.Flags(), os.Environ()); err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		o.out = &console.Output{Writer: out, Colours: o.colour.always || !o.colour.never && console.Coloured(out)}
		cmd.SetOut(o.out)
		if o.template == "" {
			return nil
		}
		o.json = true
		shaped, err := console.NewShaper(cmd.OutOrStdout(), o.template)
		if err != nil {
			return err
		}
		cmd.SetOut(shaped)
		cmd.RunE = closeAfterRun(shaped, cmd.RunE)
		return nil
	}
}

// closeAfterRun makes a command write what it shapes also where its exit code says something, as
// that of job plan does: after an error cobra calls nothing that would.
func closeAfterRun(shaped *console.Shaper, run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		if failed := shaped.Close(); failed != nil && (err == nil || errors.As(err, new(*console.ExitError))) {
			return failed
		}
		return err
	}
}

func versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "version", Short: "Show the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := struct{ Version, Go, System string }{version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			if asJSON {
				return console.JSON(cmd.OutOrStdout(), v)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "skerry %s (%s, %s)\n", v.Version, v.Go, v.System)
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}
