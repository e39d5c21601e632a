package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"

	"skerry/drivers"
	"skerry/fleet"
	"skerry/internal/pace"
)

var _ drivers.Execer = (*task)(nil)

// execEndPatience bounds the wait for the exit code of a command whose output has ended.
const execEndPatience = 10 * time.Second

// endOfInput is the character that ends the input of a terminal.
const endOfInput = 4

// Exec runs a command in the container and returns its exit code. Daemons cannot end a command, so the agent kills the
// command's process when ctx ends.
func (t *task) Exec(ctx context.Context, x fleet.Exec) (int, error) {
	defer x.Stdin.Close()
	for _, s := range x.Command {
		if strings.ContainsRune(s, 0) {
			return 0, fleet.Errorf(fleet.CodeInvalid, "run a command: the command contains a NUL byte")
		}
	}
	code, err := t.execCommand(ctx, x)
	if err != nil && ctx.Err() == nil {
		return 0, fmt.Errorf("run a command beside task %s: %w", t.cfg.ID, err)
	}
	return code, err
}

func (t *task) execCommand(ctx context.Context, x fleet.Exec) (int, error) {
	api := t.driver.client
	options := client.ExecCreateOptions{
		Cmd: x.Command, TTY: x.TTY, AttachStdin: true, AttachStdout: true, AttachStderr: true, User: t.cfg.User,
	}
	if x.TTY {
		options.Env = []string{"TERM=xterm"}
	}
	made, err := api.ExecCreate(ctx, t.container, options)
	if err != nil {
		if errdefs.IsConflict(err) || errdefs.IsNotFound(err) {
			return 0, fleet.Errorf(fleet.CodeConflict, "the container does not run")
		}
		return 0, t.driver.daemonError("make command", err)
	}
	conn, err := t.attachExec(ctx, made.ID, x.TTY)
	if err != nil {
		if isMissingCommand(err) {
			return 0, fleet.Errorf(fleet.CodeInvalid, "%s", daemonMessage(err))
		}
		return 0, t.driver.daemonError("start command", err)
	}
	defer context.AfterFunc(ctx, func() { t.endExec(made.ID) })()
	defer context.AfterFunc(ctx, conn.Close)()
	over := make(chan struct{})
	var typing sync.WaitGroup
	typing.Go(func() {
		_, _ = io.Copy(conn.Conn, x.Stdin) // ends with the command: Stdin is closed then
		if x.TTY {                         // Docker ends the output of a terminal whose input is closed
			_, _ = conn.Conn.Write([]byte{endOfInput})
			return
		}
		_ = conn.CloseWrite()
	})
	if x.TTY {
		typing.Go(func() { t.applyTerminalSizes(ctx, made.ID, x.Sizes, over) })
	}
	if x.TTY {
		_, err = io.Copy(x.Stdout, conn.Reader)
	} else {
		_, err = stdcopy.StdCopy(x.Stdout, x.Stderr, conn.Reader)
	}
	close(over)
	_ = x.Stdin.Close()
	conn.Close()
	typing.Wait()
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, drivers.Recoverable(fmt.Errorf("read output: %w", err))
	}
	return t.execExitCode(ctx, made.ID)
}

// attachExec starts a command and returns the connection to it. If its caller goes, the connection stays until the command has been killed:
// Podman forgets a command whose connection ends during its start, and runs it.
func (t *task) attachExec(ctx context.Context, id string, tty bool) (client.HijackedResponse, error) {
	var made client.ExecAttachResult
	var err error
	attached := make(chan struct{})
	go func() {
		defer close(attached)
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
		defer cancel()
		made, err = t.driver.client.ExecAttach(limited, id, client.ExecAttachOptions{TTY: tty})
	}()
	select {
	case <-attached:
		return made.HijackedResponse, err
	case <-ctx.Done():
	}
	go func() {
		<-attached
		t.endExec(id)
		if err == nil {
			made.Close()
		}
	}()
	return client.HijackedResponse{}, ctx.Err()
}

// execExitCode returns the exit code of a command whose output has ended. The daemon may learn it a moment later.
func (t *task) execExitCode(ctx context.Context, id string) (int, error) {
	for deadline := time.Now().Add(execEndPatience); ; {
		limited, cancel := context.WithTimeout(ctx, requestTimeout)
		state, err := t.driver.client.ExecInspect(limited, id, client.ExecInspectOptions{})
		cancel()
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case err != nil:
			return 0, t.driver.daemonError("read exit code", err)
		case !state.Running:
			return state.ExitCode, nil
		case time.Now().After(deadline): // the command has closed its output and still runs
			return 0, nil
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// endExec kills the process of a command whose caller has gone. The daemon may start it only now: it then says for a while that the
// command runs, or does not run, and has no process.
func (t *task) endExec(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		state, err := t.driver.client.ExecInspect(ctx, id, client.ExecInspectOptions{})
		switch {
		case errdefs.IsNotFound(err):
			return
		case err == nil && state.PID > 0:
			if state.Running {
				killInContainer(state.PID, t.container)
			}
			return
		}
		if !pace.Rest(ctx, pause) {
			return
		}
	}
}

// applyTerminalSizes sets the command's terminal to each received size, until over is closed.
func (t *task) applyTerminalSizes(ctx context.Context, id string, sizes <-chan fleet.TerminalSize, over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-ctx.Done():
			return
		case size := <-sizes:
			// A command that has ended has no terminal.
			_, _ = t.driver.client.ExecResize(ctx, id, client.ExecResizeOptions{Height: uint(size.Height), Width: uint(size.Width)})
		}
	}
}
