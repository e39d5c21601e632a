package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"skerry/drivers/builtin"
)

// TestMain lets the scripts of testdata run this very program as skerry, also as the
// supervisor of its tasks.
func TestMain(m *testing.M) {
	builtin.RunTaskProcess()
	if address := os.Getenv(serveEnv); address != "" {
		fmt.Fprintln(os.Stderr, serveMetrics(address))
		os.Exit(1)
	}
	testscript.Main(m, map[string]func(){"skerry": main})
}

func TestScripts(t *testing.T) {
	cmds := map[string]func(*testscript.TestScript, bool, []string){
		"await": await, "firstid": firstID, "http": request, "refused": refused, "exits": exits,
	}
	maps.Copy(cmds, onDisks)
	mounts := len(onDisks) > 0 && os.Geteuid() == 0
	if !mounts {
		t.Log("disks that are full or read-only are not tried here: that needs root on Linux; " +
			"their effect on a journal is tested in edge/journal and edge/allocs by steps that fail")
	}
	scripts, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("found %d scripts, %v", len(scripts), err)
	}
	for _, script := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(script), ".txtar"), func(t *testing.T) {
			t.Parallel()
			testscript.RunT(scriptT{t}, testscript.Params{
				Files:    []string{script},
				Deadline: time.Now().Add(scriptBound), // a daemon that should not have started ends with it
				Cmds:     cmds,
				Condition: func(name string) (bool, error) {
					if name != "mounts" {
						return false, fmt.Errorf("unknown condition %q", name)
					}
					return mounts, nil
				},
				Setup: setUp,
			})
		})
	}
}

// scriptT has a script run as soon as it is started: its time is running. That scripts
// run beside each other is TestScripts' doing.
type scriptT struct{ *testing.T }

func (t scriptT) Parallel()     {}
func (t scriptT) Verbose() bool { return testing.Verbose() }
func (t scriptT) Run(name string, script func(testscript.T)) {
	t.T.Run(name, func(t *testing.T) { script(scriptT{t}) })
}

// setUp gives a script ports of its own, and sees to it that it leaves no process.
func setUp(env *testscript.Env) error {
	tb := env.T().(testing.TB)
	tb.Cleanup(func() { mustLeaveNothing(tb, env.WorkDir, leftoverBound) }) // after its daemons have ended
	env.Setenv("TZ", "UTC")
	directories, err := filepath.Abs("testdata/directories")
	if err != nil {
		return err
	}
	env.Setenv("DIRECTORIES", directories)
	for _, name := range []string{"HTTP", "QUIC", "GOSSIP"} {
		port, err := freePort()
		if err != nil {
			return err
		}
		env.Setenv(name, fmt.Sprint(port))
	}
	return nil
}

// scriptBound is how long a script may take.
const scriptBound = 4 * time.Minute

// leftoverBound is how long a script's last processes may take to end.
const leftoverBound = 10 * time.Second

// awaitBound is how long await tries.
const awaitBound = 30 * time.Second

// await runs a program (the arguments after the first) until its output matches the first argument.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: await REGEXP PROGRAM [ARGUMENT…]")
	}
	want, err := regexp.Compile(args[0])
	ts.Check(err)
	for deadline := time.Now().Add(awaitBound); ; {
		begun := time.Now()
		err := ts.Exec(args[1], args[2:]...)
		out := ts.ReadFile("stdout")
		if err == nil && want.MatchString(out) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("still no match for %q after %s: %v\n%s%s", args[0], awaitBound, err, out, ts.ReadFile("stderr"))
		}
		time.Sleep(max(100*time.Millisecond, 3*time.Since(begun))) // other scripts need the cores
	}
}

var allocID = regexp.MustCompile(`(?m)^([0-9a-f]{8}) .* running`)

// firstID sets ALLOC to the id of a running allocation of a job.
func firstID(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: firstid JOB")
	}
	ts.Check(ts.Exec("skerry", "job", "status", args[0]))
	found := allocID.FindStringSubmatch(ts.ReadFile("stdout"))
	if found == nil {
		ts.Fatalf("job %s has no running allocation:\n%s", args[0], ts.ReadFile("stdout"))
	}
	ts.Setenv("ALLOC", found[1])
}

// request sends a file ("-": nothing) to the hub at SKERRY_ADDR by HTTP: the answer
// has to have a status, and becomes the standard output.
func request(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: http METHOD PATH FILE STATUS")
	}
	body := ""
	if args[2] != "-" {
		body = ts.ReadFile(args[2])
	}
	req, err := http.NewRequest(args[0], ts.Getenv("SKERRY_ADDR")+args[1], strings.NewReader(body))
	ts.Check(err)
	answer, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	ts.Check(err)
	if fmt.Sprint(answer.StatusCode) != args[3] {
		ts.Fatalf("%s %s: %s, want %s: %s", args[0], args[1], answer.Status, args[3], text)
	}
	_, err = fmt.Fprintln(ts.Stdout(), strings.TrimSuffix(string(text), "\n"))
	ts.Check(err)
}

// refused runs a program (the arguments after the first) that has to fail with exit
// code 1 and one error that matches the first argument, without a stack trace.
func refused(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: refused REGEXP PROGRAM [ARGUMENT…]")
	}
	want, err := regexp.Compile(args[0])
	ts.Check(err)
	var failed *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); !errors.As(err, &failed) || failed.ExitCode() != 1 {
		ts.Fatalf("%s ended with %v, want exit code 1", args[1], err)
	}
	said := ts.ReadFile("stderr")
	for _, sign := range []string{"panic", "goroutine ", "level=ERROR"} {
		if strings.Contains(said, sign) {
			ts.Fatalf("%q in what it said:\n%s", sign, said)
		}
	}
	if n := strings.Count("\n"+said, "\n"+args[1]+": "); n != 1 {
		ts.Fatalf("it said %d errors, want one:\n%s", n, said)
	}
	if !want.MatchString(said) {
		ts.Fatalf("no match for %q in:\n%s", args[0], said)
	}
}

// exits runs a program (the arguments after the first) that has to end with an exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARGUMENT…]")
	}
	code := 0
	var failed *exec.ExitError
	switch err := ts.Exec(args[1], args[2:]...); {
	case errors.As(err, &failed):
		code = failed.ExitCode()
	default:
		ts.Check(err)
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("exit code %d, want %s:\n%s%s", code, args[0], ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
}

// freePort finds a port that nothing uses at the moment, by TCP and UDP.
func freePort() (int, error) {
	for range 50 {
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		port := tcp.Addr().(*net.TCPAddr).Port
		udp, err := net.ListenPacket("udp", tcp.Addr().String())
		if err == nil {
			_ = udp.Close() // it was only tried
		}
		_ = tcp.Close() // likewise
		if err == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no port is free by TCP and UDP")
}
