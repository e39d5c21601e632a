package supervised

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"skerry/drivers"
	"skerry/drivers/record"
	"skerry/fleet"
)

var _ drivers.Execer = (*task)(nil)

// terminal is the variable TERM of a command with a terminal, if the task sets none.
const terminal = "TERM=xterm"

// Exec runs a command in the task's folder with the task's environment and returns its exit code. The command
// is a child of the agent in its own session and ends with the agent. Processes that it leaves in its process
// group are killed.
func (t *task) Exec(ctx context.Context, x fleet.Exec) (int, error) {
	defer x.Stdin.Close()
	var sp spec
	if err := record.Read(t.dir, specFile, &sp); err != nil {
		return 0, fmt.Errorf("run a command: %w", err)
	}
	for _, s := range x.Command {
		if strings.ContainsRune(s, 0) {
			return 0, fleet.Errorf(fleet.CodeInvalid, "the command contains a NUL byte")
		}
	}
	if sp.Container != nil {
		return t.execInContainer(ctx, &sp, x)
	}
	if err := sp.readArguments(); err != nil {
		return 0, fmt.Errorf("run a command: %w", err)
	}
	cmd, err := sp.buildCommand(x)
	if err != nil {
		return 0, fmt.Errorf("run a command: %w", err)
	}
	return t.runCommand(ctx, cmd, x, func() error { return sp.startBeside(cmd) }, func() { killGroupOf(cmd) })
}

// killGroupOf kills the process group of a command that is not reaped yet.
func killGroupOf(cmd *exec.Cmd) { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }

// runCommand connects a command with the client, starts it by start and returns its exit code when it has ended. If ctx ends first, it
// calls kill.
func (t *task) runCommand(ctx context.Context, cmd *exec.Cmd, x fleet.Exec, start func() error, kill func()) (int, error) {
	open := connectPipes
	if x.TTY {
		open = connectTerminal
	}
	ends, err := open(cmd, x)
	if err != nil {
		return 0, fmt.Errorf("run a command beside task %s: %w", t.id, err)
	}
	err = start()
	ends.closeCommandFiles()
	if err != nil {
		ends.closeAgentFiles()
		return 0, fleet.Errorf(fleet.CodeInvalid, "run a command: %w", err)
	}
	return ends.serveCommand(ctx, cmd, x, kill)
}

// buildCommand makes the command of x with the folder, environment and user of the task. It starts nothing.
func (sp *spec) buildCommand(x fleet.Exec) (*exec.Cmd, error) {
	path, err := FindProgram(x.Command[0], sp.Dir, sp.Env)
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "%w", err)
	}
	env := sp.Env
	if x.TTY && lookupEnv(env, "TERM") == "" {
		env = append(env, terminal)
	}
	return &exec.Cmd{
		Path: path, Args: x.Command, Env: env, Dir: sp.Dir,
		SysProcAttr: &unix.SysProcAttr{Setsid: true, Setctty: x.TTY, Pdeathsig: unix.SIGKILL, Credential: sp.User.processCredential()},
	}, nil
}

// startBeside starts a command in the network namespace and the cgroup of the task.
func (sp *spec) startBeside(cmd *exec.Cmd) error {
	if err := inNetworkNamespace(sp.Namespace, cmd.Start); err != nil {
		return err
	}
	if sp.Cgroup == nil {
		return nil
	}
	if err := sp.Cgroup.Add(cmd.Process.Pid); err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, os.ErrNotExist) {
		_ = cmd.Process.Kill()
		return errors.Join(err, cmd.Wait())
	}
	return nil
}

// execStreams are the ends of the pipes, or of the terminal, of a command.
type execStreams struct {
	commandFiles []*os.File // the command's ends; the agent closes them once the command has started
	agentFiles   []*os.File // the agent's ends
	stdin        *os.File   // input of the command
	outputs      []outputCopy
	master       *os.File // of its terminal; nil: none
}

// outputCopy is an output of a command and the writer that it is copied to.
type outputCopy struct {
	from *os.File
	to   io.Writer
}

// connectPipes makes pipes and sets them as the command's input and outputs.
func connectPipes(cmd *exec.Cmd, x fleet.Exec) (*execStreams, error) {
	e := &execStreams{}
	pipe := func() (r, w *os.File, err error) {
		if r, w, err = os.Pipe(); err != nil {
			e.closeCommandFiles()
			e.closeAgentFiles()
		}
		return r, w, err
	}
	r, w, err := pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdin, e.stdin = r, w
	e.commandFiles, e.agentFiles = append(e.commandFiles, r), append(e.agentFiles, w)
	for _, to := range []io.Writer{x.Stdout, x.Stderr} {
		if r, w, err = pipe(); err != nil {
			return nil, err
		}
		e.commandFiles, e.agentFiles = append(e.commandFiles, w), append(e.agentFiles, r)
		e.outputs = append(e.outputs, outputCopy{r, to})
	}
	cmd.Stdout, cmd.Stderr = e.commandFiles[1], e.commandFiles[2]
	return e, nil
}

// connectTerminal makes a pseudo terminal and sets it as the command's input and outputs.
func connectTerminal(cmd *exec.Cmd, x fleet.Exec) (*execStreams, error) {
	master, slave, err := openTerminal()
	if err != nil {
		return nil, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	return &execStreams{
		commandFiles: []*os.File{slave}, agentFiles: []*os.File{master},
		stdin: master, outputs: []outputCopy{{master, x.Stdout}}, master: master,
	}, nil
}

func (e *execStreams) closeCommandFiles() { closeAll(e.commandFiles) }
func (e *execStreams) closeAgentFiles()   { closeAll(e.agentFiles) }

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // pipes and terminals buffer nothing
	}
}

// serveCommand copies the input, output and terminal sizes of a started command until it has ended and all its
// output was read, and returns its exit code. If ctx ends first, it calls kill, which ends the command.
func (e *execStreams) serveCommand(ctx context.Context, cmd *exec.Cmd, x fleet.Exec, kill func()) (int, error) {
	stop := context.AfterFunc(ctx, func() {
		e.closeAgentFiles()
		kill()
	})
	over := make(chan struct{})
	var typing, taking sync.WaitGroup
	typing.Go(func() { e.copyStdin(x.Stdin) })
	if e.master != nil {
		typing.Go(func() { e.applyTerminalSizes(x.Sizes, over) })
	}
	for _, o := range e.outputs {
		taking.Go(func() { _, _ = io.Copy(o.to, o.from) }) // reading a terminal without users is an error
	}
	err := cmd.Wait()
	killGroupOf(cmd) // processes that the command left in its group
	stop()
	stop = context.AfterFunc(ctx, e.closeAgentFiles) // the group's number may be reused from here on
	close(over)
	_ = x.Stdin.Close()
	taking.Wait() // ends with the last process that has the output open, or with ctx
	stop()
	e.closeAgentFiles()
	typing.Wait()
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return status.ExitStatus(), nil
}

// endOfInput is the character that ends the input of a terminal.
const endOfInput = 4

// copyStdin copies the client's input to the command, and closes the command's input at its end.
func (e *execStreams) copyStdin(from io.Reader) {
	if _, err := io.Copy(e.stdin, from); err != nil {
		return // the command reads no more, or the client is gone
	}
	if e.master != nil {
		_, _ = e.stdin.Write([]byte{endOfInput})
		return
	}
	_ = e.stdin.Close()
}

// applyTerminalSizes sets the terminal to each size that it receives, until over is closed.
func (e *execStreams) applyTerminalSizes(sizes <-chan fleet.TerminalSize, over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case size := <-sizes:
			_ = withDescriptor(e.master, func(fd int) error { // a closed terminal has no size
				return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: size.Height, Col: size.Width})
			})
		}
	}
}

// openTerminal opens a pseudo terminal and returns its ends: master for the agent, slave for the command.
func openTerminal() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	var number uint32
	err = withDescriptor(master, func(fd int) (err error) {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		number, err = unix.IoctlGetUint32(fd, unix.TIOCGPTN)
		return err
	})
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open a terminal: %w", err), master.Close())
	}
	return master, slave, nil
}

// withDescriptor calls call with a file's descriptor, without making the file blocking, and returns its error.
func withDescriptor(f *os.File, call func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = call(int(fd)) }); err != nil {
		return err
	}
	return failed
}
