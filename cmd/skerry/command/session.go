// Package command is what the commands that ask a hub have in common: their flags, the hub's client, objects
// by abbreviated ids, waiting for changes, and what shells offer to complete. The packages of the nouns make
// the commands; this one starts a goroutine for each change that a command waits for, and persists nothing.
package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/console"
	"skerry/fleet"
)

// Session is one run of the program: what all commands are told, and where they write.
type Session struct {
	Out console.Output

	connection connection
	namespace  string // "": the one of the job file, or the default
}

// AddFlags gives a group of commands the flags that all of them have.
func (s *Session) AddFlags(group *cobra.Command) {
	flags := group.PersistentFlags()
	s.connection.addConnectionFlags(flags)
	flags.StringVar(&s.namespace, "namespace", "", `namespace (default "default", or that of the job file); * is all namespaces, for lists and searches`)
	s.Out.AddFlags(flags)
	console.AddConfigFlag(flags)
	group.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := console.CompleteFlags(cmd.Flags(), os.Environ()); err != nil {
			return err
		}
		s.Out.AllNamespaces = s.namespace == "*"
		return s.Out.Open(cmd.OutOrStdout())
	}
}

// Call is one call of a command.
type Call struct {
	*cobra.Command
	Args []string
	Hub  *client.Client
	Out  *console.Output

	session *Session
}

// Run makes a command of a function that asks a hub.
func (s *Session) Run(run func(*Call) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		hub, err := s.hubClient()
		if err == nil {
			err = run(&Call{Command: cmd, Args: args, Hub: hub, Out: &s.Out, session: s})
		}
		return s.Out.Close(err)
	}
}

// RunOffline makes a command of a function that asks no hub.
func (s *Session) RunOffline(run func(*Call) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return s.Out.Close(run(&Call{Command: cmd, Args: args, Out: &s.Out, session: s}))
	}
}

// RunAlloc makes a command of a function that is about the allocation which the first argument names.
func (s *Session) RunAlloc(run func(*Call, api.AllocStub) error) func(*cobra.Command, []string) error {
	return runAbout(s, (*Call).FindAlloc, run)
}

// RunJob makes a command of a function that is about the job which the first argument names.
func (s *Session) RunJob(run func(*Call, api.JobStub) error) func(*cobra.Command, []string) error {
	return runAbout(s, (*Call).FindJob, run)
}

// RunNode makes a command of a function that is about the node which the first argument names.
func (s *Session) RunNode(run func(*Call, api.NodeStub) error) func(*cobra.Command, []string) error {
	return runAbout(s, (*Call).FindNode, run)
}

func runAbout[T any](s *Session, find func(*Call, string) (T, error), run func(*Call, T) error) func(*cobra.Command, []string) error {
	return s.Run(func(c *Call) error {
		found, err := find(c, c.Args[0])
		if err != nil {
			return err
		}
		return run(c, found)
	})
}

// Group is a command that has commands.
func Group(use, short string, children ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short}
	c.AddCommand(children...)
	return c
}

func (s *Session) hubClient() (*client.Client, error) {
	cfg, err := s.connection.clientConfig()
	if err != nil {
		return nil, err
	}
	hub, err := client.New(cfg)
	if err != nil {
		return nil, err
	}
	return hub.In(s.namespace).OnStale(s.noteStale), nil
}

// noteStale says that an answer may be old: beside it once, and in each table.
func (s *Session) noteStale() {
	warnStale()
	s.Out.SetStale(true)
}

// warnStale says once, beside the answer, that it may be old.
var warnStale = sync.OnceFunc(func() {
	fmt.Fprintln(os.Stderr, "Warning: this hub knows no leader: what it shows may be old")
})

// Namespace is the namespace that the command line names, or the default one.
func (c *Call) Namespace() string { return cmp.Or(c.session.namespace, fleet.DefaultNamespace) }

// AskForJob asks the hub in the namespace of a job file, unless the command line names one.
func (c *Call) AskForJob(job *fleet.Job) {
	if c.session.namespace == "" || c.session.namespace == fleet.DefaultNamespace {
		c.Hub = c.Hub.In(job.Namespace)
	}
}

// FindAlloc finds the allocation of an id that may be abbreviated. The hub is asked in its namespace from then on.
func (c *Call) FindAlloc(id string) (api.AllocStub, error) {
	stub, err := c.Hub.FindAlloc(c.Context(), id)
	c.Hub = c.Hub.In(stub.Namespace)
	return stub, err
}

// FindJob finds the job of an id that may be abbreviated. The hub is asked in its namespace from then on.
func (c *Call) FindJob(id string) (api.JobStub, error) {
	stub, err := c.Hub.FindJob(c.Context(), id)
	c.Hub = c.Hub.In(stub.Namespace)
	return stub, err
}

// WholeJob is FindJob for commands that need more than the short form.
func (c *Call) WholeJob(id string) (*fleet.Job, error) {
	stub, err := c.FindJob(id)
	if err != nil {
		return nil, err
	}
	return c.Hub.Job(c.Context(), stub.ID)
}

// FindNode finds the node of a name, or of an id that may be abbreviated.
func (c *Call) FindNode(ref string) (api.NodeStub, error) { return c.Hub.FindNode(c.Context(), ref) }

// Changed reports whether the command line has a flag.
func (c *Call) Changed(flag string) bool { return c.Flags().Changed(flag) }

// Warn writes a warning for each line of a text beside the output.
func (c *Call) Warn(warnings []string) {
	for _, line := range warnings {
		fmt.Fprintf(c.ErrOrStderr(), "Warning: %s\n", line)
	}
}

// Interrupted turns an interrupt of a command that follows something into its last line.
func (c *Call) Interrupted(err error) error {
	if c.Context().Err() == nil {
		return err
	}
	c.Out.Line("Stopped following; the job continues.")
	return &console.ExitError{Code: exitInterrupted, Err: err, Silent: true}
}

// exitInterrupted is the exit code where somebody stopped following with an interrupt.
const exitInterrupted = 130

// BlockingRead reads again with a client that waits for a newer answer.
type BlockingRead func(ctx context.Context, hub *client.Client) error

// AwaitAnyChange waits until the answer of one of the reads is newer than its index.
func (c *Call) AwaitAnyChange(reads map[*fleet.Index]BlockingRead) error {
	ctx, cancel := context.WithCancel(c.Context())
	changed := make(chan error, len(reads))
	for index, read := range reads {
		*index = max(*index, 1) // after 0 it answers at once
		go func() { changed <- read(ctx, c.Hub.Watch(index)) }()
	}
	err := <-changed
	cancel()
	for range len(reads) - 1 {
		<-changed
	}
	return err
}

// AddDetach adds --detach.
func AddDetach(c *cobra.Command, detach *bool) {
	c.Flags().BoolVarP(detach, "detach", "d", false, "return as soon as the hub has accepted the request")
}

// AddNoShutdownDelay adds --no-shutdown-delay to a command that stops allocations.
func AddNoShutdownDelay(c *cobra.Command, noDelay *bool) {
	c.Flags().BoolVar(noDelay, "no-shutdown-delay", false, "skip the shutdown_delay of groups and tasks, also one that is running already")
}

// AddYes adds --yes, which scripts for Nomad give.
func AddYes(c *cobra.Command) {
	c.Flags().BoolP("yes", "y", false, "accepted for scripts; this command asks nothing")
}

// WriteNewFile writes an example to a file that does not exist yet.
func WriteNewFile(name, text string) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fleet.Errorf(fleet.CodeConflict, "write an example to %s: the file exists", name).WithHint("choose another name")
	}
	if err != nil {
		return fleet.Errorf(fleet.CodeInvalid, "write an example: %w", err)
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}
