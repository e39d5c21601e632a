package variable

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"skerry/client"
	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/fleet"
	"skerry/internal/pace"
)

const (
	// acquirePoll is the pause before the next try to acquire a lock that somebody else has.
	acquirePoll = time.Second
	// releaseTimeout bounds the release of a lock after the command has ended.
	releaseTimeout = 10 * time.Second
)

func lockCommand(s *command.Session) *cobra.Command {
	lock := fleet.VariableLock{}
	shell, tries := true, 0
	c := &cobra.Command{
		Use: "lock PATH|@FILE COMMAND [ARG ...]", Short: "Run a command while holding the lock of a variable", Args: cobra.MinimumNArgs(2),
		Example: `  skerry var lock --ttl 30s app/lock ./report.sh`,
		Long: "Acquire the lock of a variable, run a command, and release the lock when the command has ended. The variable is\n" +
			"created if there is none. While somebody else has the lock, this command waits. The lock is renewed in time; if\n" +
			"that fails until the TTL is over, the command is killed. The exit code is that of the command.",
		RunE: s.Run(func(c *command.Call) error {
			all := c.Args
			c.Args = all[:1]
			v, err := variableOf(c, "")
			if err != nil {
				return err
			}
			if v.Lock == nil || c.Changed("ttl") || c.Changed("delay") {
				v.Lock = &lock
			}
			if v.Namespace != "" {
				c.Hub = c.Hub.In(v.Namespace)
			}
			held, err := acquireLock(c.Context(), c.Hub, v, tries)
			if err != nil {
				return err
			}
			err = runLocked(c, held, commandOf(c, all[1:], shell))
			ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), releaseTimeout)
			defer cancel()
			if released := c.Hub.UnlockVariable(ctx, fleet.Variable{VariableMeta: held.VariableMeta}); released != nil && !isConflict(released) {
				err = errors.Join(err, fmt.Errorf("release the lock of variable %s: %w", v.Path, released))
			}
			return err
		}),
	}
	c.Flags().DurationVar(&lock.TTL, "ttl", fleet.DefaultLockTTL, "time without a renewal after which the lock ends: 10s to 24h")
	c.Flags().DurationVar(&lock.LockDelay, "delay", fleet.DefaultLockDelay, "time after the end of a lock that was not released, before somebody else can acquire it")
	c.Flags().BoolVar(&shell, "shell", true, "run the command with /bin/sh -c")
	c.Flags().IntVar(&tries, "max-retry", 0, "fail after so many tries to acquire the lock; 0: wait as long as it takes")
	c.Flags().SetInterspersed(false)
	return c
}

func isConflict(err error) bool { return errors.As(err, new(*client.VariableConflict)) }

// acquireLock acquires the lock of a variable, and waits while somebody else has it. tries bounds the tries; 0: no bound.
func acquireLock(ctx context.Context, hub *client.Client, v fleet.Variable, tries int) (fleet.Variable, error) {
	for try := 1; ; try++ {
		held, err := hub.LockVariable(ctx, v)
		if !isConflict(err) || try == tries {
			return held, err
		}
		if !pace.Rest(ctx, acquirePoll) {
			return held, ctx.Err()
		}
	}
}

// commandOf makes the command that runs while the lock is held.
func commandOf(c *command.Call, args []string, shell bool) *exec.Cmd {
	run := exec.Command(args[0], args[1:]...)
	if shell {
		text := args[0]
		for _, arg := range args[1:] {
			text += " " + arg
		}
		run = exec.Command("/bin/sh", "-c", text)
	}
	run.Stdin, run.Stdout, run.Stderr = c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr()
	return run
}

// runLocked runs a command and renews the lock meanwhile. It kills the command if the lock is lost.
func runLocked(c *command.Call, held fleet.Variable, run *exec.Cmd) error {
	run.Env = append(os.Environ(), "SKERRY_LOCK_PATH="+held.Path, "SKERRY_LOCK_ID="+held.Lock.ID)
	if err := run.Start(); err != nil {
		return fleet.Errorf(fleet.CodeInvalid, "run a command with the lock of variable %s: %w", held.Path, err)
	}
	ctx, stop := context.WithCancel(c.Context())
	lost := make(chan error, 1)
	go func() {
		err := keepLock(ctx, func(ctx context.Context) error {
			return c.Hub.RenewVariableLock(ctx, fleet.Variable{VariableMeta: held.VariableMeta})
		}, held.Lock.TTL)
		if err != nil || c.Context().Err() != nil {
			_ = run.Process.Kill() // it may have ended
		}
		lost <- err
	}()
	err := run.Wait()
	stop()
	if gone := <-lost; gone != nil {
		return fmt.Errorf("the command was killed: the lock of variable %s is lost: %w", held.Path, gone)
	}
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return &console.ExitError{Code: max(exit.ExitCode(), 1), Err: fmt.Errorf("the command ended: %w", err), Silent: true}
	}
	return err
}

// keepLock renews a lock until ctx ends. It fails if the lock is lost, or could not be renewed for its TTL.
func keepLock(ctx context.Context, renew func(context.Context) error, ttl time.Duration) error {
	end := time.Now().Add(ttl)
	for pace.Rest(ctx, min(ttl/3, time.Until(end))) {
		call, cancel := context.WithDeadline(ctx, end)
		began := time.Now()
		err := renew(call)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			end = began.Add(ttl)
		case isConflict(err) || !time.Now().Before(end):
			return err
		}
	}
	return nil
}
