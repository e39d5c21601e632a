//go:build operations && linux

// Package docs_test runs every command of operations.md as root, each on the machine that it
// names: a network namespace with an address of its own, and a mount namespace in which /etc, /var,
// /root and /usr/local/bin are the machine's.
package docs_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// testTimeout is how long a command may fail until it is right: programs take a moment to start, and
// a person reads before he types the next line.
const testTimeout = 45 * time.Second

// addresses are those of the machines in operations.md.
var addresses = map[string]string{
	"hub1": "192.0.2.10", "hub2": "192.0.2.11", "hub3": "192.0.2.12", "hub4": "192.0.2.13",
	"shop-17": "192.0.2.117", "shop-18": "192.0.2.118",
}

// systemctl does for a unit file what systemd does: start, stop, restart and kill its ExecStart.
const systemctl = `#!/bin/sh
set -e
verb=$1 unit=$2
run=/var/$unit.pid
stop() {
	pid=$(cat $run); kill -$1 $pid
	while kill -0 $pid 2>/dev/null; do sleep 0.05; done
}
case $verb in
start) ;;
stop) stop TERM; exit ;;
kill) stop KILL; exit ;;
restart) stop TERM ;;
*) echo "systemctl $verb is not known" >&2; exit 1 ;;
esac
start=$(sed -n 's/^ExecStart=//p' /etc/systemd/system/$unit.service)
setsid $start >>/var/$unit.log 2>&1 </dev/null &
echo $! >$run
`

// step is a file, a copy of a file, or a command of the page.
type step struct {
	line     int
	machines []string // that it is on
	file     string   // to write, with body
	body     string
	from     string // machine to copy path from, to file
	path     string
	command  string
}

var (
	fileLine    = regexp.MustCompile(`^# file (\S+) on (.+)$`)
	copyLine    = regexp.MustCompile(`^# copy (\S+) on (\S+) to (\S+) on (.+)$`)
	commandLine = regexp.MustCompile(`^(\S+)# (.+)$`)
	// promptLine is an indented line that looks like a command, of a machine or of a person.
	promptLine = regexp.MustCompile(`^[a-z0-9-]+[#$%] `)
	// programLine is an indented line that begins with a program of ours, without the prompt of a machine.
	programLine = regexp.MustCompile(`^(sudo )?(skerry|skerry-edge|skerry-chaos|systemctl|make)\b`)
)

// notRun are the beginnings of commands that the test does not run, each with the reason.
var notRun = map[string]string{
	"operator$ skerry context add prod ": "needs the name hub1.example.com and the hash of the CA; scripts of cmd/skerry add a context by its hash",
	"operator$ ssh -L ":                  "needs a server of SSH",
}

// isNotRun reports whether notRun has a command.
func isNotRun(text string) bool {
	for begin := range notRun {
		if strings.HasPrefix(text, begin) {
			return true
		}
	}
	return false
}

// readSteps reads the indented lines of the page.
func readSteps(tb testing.TB, page string) []step {
	tb.Helper()
	var steps []step
	open := false // a file whose lines follow
	for i, line := range strings.Split(page, "\n") {
		text, indented := strings.CutPrefix(line, "    ")
		text = strings.TrimSpace(text)
		if !indented && line != "" {
			open = false
		}
		if !indented {
			if open {
				steps[len(steps)-1].body += "\n"
			}
			continue
		}
		at := i + 1
		if m := fileLine.FindStringSubmatch(text); m != nil {
			steps, open = append(steps, step{line: at, file: m[1], machines: strings.Fields(m[2])}), true
		} else if m := copyLine.FindStringSubmatch(text); m != nil {
			steps, open = append(steps, step{line: at, path: m[1], from: m[2], file: m[3], machines: strings.Fields(m[4])}), false
		} else if m := commandLine.FindStringSubmatch(text); m != nil && addresses[m[1]] != "" {
			steps, open = append(steps, step{line: at, machines: []string{m[1]}, command: m[2]}), false
		} else if promptLine.MatchString(text) {
			if !isNotRun(text) {
				tb.Errorf("operations.md:%d: %q has the prompt of no machine, and notRun does not have it", at, text)
			}
			open = false
		} else if open {
			steps[len(steps)-1].body += text + "\n"
		} else if programLine.MatchString(text) {
			tb.Errorf("operations.md:%d: %q has no prompt: it is run on no machine", at, text)
		}
	}
	return steps
}

// machine is a process that holds the namespaces of a machine open.
type machine struct {
	name, root      string
	namespaceHolder *exec.Cmd
}

// TestReadStepsRefusesUnknownPrompts reads commands that would be run on no machine.
func TestReadStepsRefusesUnknownPrompts(t *testing.T) {
	for line, unknown := range map[string]bool{
		"hub1# skerry node status":                      false,
		"operator$ ssh -L 1:h:1 hub1":                   false,
		"operator$ skerry node status":                  true,
		"hub9# skerry node status":                      true,
		"% skerry node status":                          false, // no prompt: output
		"skerry node status":                            true,
		"skerry-edge --config FILE":                     true,
		"sudo systemctl restart x":                      true,
		"skerry_hub_nodes 3":                            false, // a metric
		"# file /etc/f on hub1\n    skerry node status": false, // a line of the file
	} {
		var r promptRecorder
		readSteps(&r, "text\n\n    "+line+"\n")
		if r.failed != unknown {
			t.Errorf("%q: refused is %t", line, r.failed)
		}
	}
}

// promptRecorder records whether readSteps refuses a line.
type promptRecorder struct {
	testing.TB
	failed bool
}

func (r *promptRecorder) Helper()               {}
func (r *promptRecorder) Errorf(string, ...any) { r.failed = true }

// TestOperations runs the page from its first line to its last.
func TestOperations(t *testing.T) {
	page, err := os.ReadFile("operations.md")
	if err != nil {
		t.Fatal(err)
	}
	steps := readSteps(t, string(page))
	if len(steps) < 50 {
		t.Fatalf("only %d steps were read", len(steps))
	}
	machines := mustStartMachines(t)
	for _, s := range steps {
		for _, name := range s.machines {
			m := machines[name]
			if m == nil {
				t.Fatalf("operations.md:%d: there is no machine %q", s.line, name)
			}
			if err := m.runStep(s, machines); err != nil {
				t.Fatalf("operations.md:%d: %v\n%s", s.line, err, daemonLogs(machines))
			}
		}
	}
	mustKnowMetrics(t, machines["hub1"])
}

// mustKnowMetrics checks that a hub has every metric of the alert rules. The page has written what
// the hub says into a file.
func mustKnowMetrics(t *testing.T, hub *machine) {
	t.Helper()
	rules, err := os.ReadFile("../examples/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	said, err := hub.runCommand("cat metrics.txt")
	if err != nil {
		t.Fatalf("read the metrics: %v: %s", err, said)
	}
	names := regexp.MustCompile(`skerry_[a-z_]+`).FindAllString(string(rules), -1)
	if len(names) < 8 {
		t.Fatalf("only %d metrics are in the rules", len(names))
	}
	for _, name := range names {
		if !bytes.Contains(said, []byte("\n"+name)) {
			t.Errorf("examples/alerts.yml: a hub has no metric %s", name)
		}
	}
}

// runStep does a step on a machine.
func (m *machine) runStep(s step, machines map[string]*machine) error {
	content := []byte(s.body)
	switch {
	case s.command != "":
		return m.runUntilSuccess(s.command)
	case s.from != "":
		out, err := machines[s.from].runCommand("cat " + s.path)
		if err != nil {
			return fmt.Errorf("read %s on %s: %w: %s", s.path, s.from, err, out)
		}
		content = out
	}
	cmd := m.commandInNamespace("mkdir -p " + filepath.Dir(s.file) + " && umask 077 && cat >" + s.file)
	cmd.Stdin = bytes.NewReader(content)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("write %s on %s: %w: %s", s.file, m.name, err, out)
	}
	return nil
}

// runUntilSuccess runs a command, again where it fails.
func (m *machine) runUntilSuccess(command string) error {
	until := time.Now().Add(testTimeout)
	for {
		out, err := m.runCommand(command)
		if err == nil {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("%s# %s: %w\n%s", m.name, command, err, out)
		}
		<-time.After(300 * time.Millisecond)
	}
}

func (m *machine) runCommand(command string) ([]byte, error) {
	return m.commandInNamespace(command).CombinedOutput()
}

func (m *machine) commandInNamespace(command string) *exec.Cmd {
	cmd := exec.Command("nsenter", "-t", fmt.Sprint(m.namespaceHolder.Process.Pid), "-m", "-n",
		"timeout", "60", "sh", "-c", "cd /root && "+command)
	cmd.WaitDelay = time.Second // a daemon may keep the output open
	return cmd
}

// mustStartMachines makes the machines and the network between them, and removes all at the end.
func mustStartMachines(t *testing.T) map[string]*machine {
	t.Helper()
	root := t.TempDir()
	bin, err := filepath.Abs("../bin")
	if err != nil {
		t.Fatal(err)
	}
	lan := fmt.Sprintf("skops%d", os.Getpid())
	mustRun(t, "ip", "netns", "add", lan)
	t.Cleanup(func() { mustRun(t, "ip", "netns", "del", lan) })
	mustRun(t, "ip", "-n", lan, "link", "add", "lan", "type", "bridge")
	mustRun(t, "ip", "-n", lan, "link", "set", "lan", "up")
	machines := map[string]*machine{}
	for name, address := range addresses {
		m := &machine{name: name, root: filepath.Join(root, name)}
		space := lan + name
		mustRun(t, "ip", "netns", "add", space)
		t.Cleanup(func() { mustRun(t, "ip", "netns", "del", space) })
		mustRun(t, "ip", "-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", name, "netns", lan)
		mustRun(t, "ip", "-n", lan, "link", "set", name, "master", "lan", "up")
		mustRun(t, "ip", "-n", space, "address", "add", address+"/24", "dev", "eth0")
		mustRun(t, "ip", "-n", space, "link", "set", "eth0", "up")
		mustRun(t, "ip", "-n", space, "link", "set", "lo", "up")
		m.startNamespaces(t, space, bin)
		machines[name] = m
	}
	return machines
}

// startNamespaces makes the machine's folders and holds its namespaces open until the test ends.
func (m *machine) startNamespaces(t *testing.T, space, bin string) {
	t.Helper()
	script := ""
	for _, dir := range []string{"/etc", "/var", "/root", "/usr/local/bin"} {
		upper, work := filepath.Join(m.root, "upper", dir), filepath.Join(m.root, "work", dir)
		for _, d := range []string{upper, work} {
			if err := os.MkdirAll(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		script += fmt.Sprintf("mount -t overlay overlay -o lowerdir=%s,upperdir=%s,workdir=%s %[1]s && ", dir, upper, work)
	}
	upper := filepath.Join(m.root, "upper", "/usr/local/bin")
	for _, program := range []string{"skerry", "skerry-edge"} {
		mustRun(t, "cp", filepath.Join(bin, program), upper)
	}
	if err := os.WriteFile(filepath.Join(upper, "systemctl"), []byte(systemctl), 0o755); err != nil {
		t.Fatal(err)
	}
	ready := filepath.Join(m.root, "ready")
	m.namespaceHolder = exec.Command("ip", "netns", "exec", space, "unshare", "--mount", "--propagation", "private", "sh", "-c",
		script+"touch "+ready+" && exec sleep infinity")
	m.namespaceHolder.Stderr = os.Stderr
	if err := m.namespaceHolder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.killProcesses(t, space) })
	for until := time.Now().Add(testTimeout); ; <-time.After(20 * time.Millisecond) {
		if _, err := os.Stat(ready); err == nil {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("machine %s does not start", m.name)
		}
	}
}

// killProcesses ends everything that runs on the machine.
func (m *machine) killProcesses(t *testing.T, space string) {
	out, err := exec.Command("ip", "netns", "pids", space).Output()
	if err != nil {
		t.Errorf("list the processes of %s: %v", m.name, err)
	}
	for _, pid := range strings.Fields(string(out)) {
		var n int
		if _, err := fmt.Sscan(pid, &n); err == nil {
			syscall.Kill(n, syscall.SIGKILL)
		}
	}
	m.namespaceHolder.Wait() // it was killed
}

// daemonLogs are the last lines of what the daemons wrote.
func daemonLogs(machines map[string]*machine) string {
	var b strings.Builder
	for name, m := range machines {
		out, _ := m.runCommand("tail -n 15 /var/*.log 2>/dev/null")
		if len(out) > 0 {
			fmt.Fprintf(&b, "--- %s\n%s", name, out)
		}
	}
	return b.String()
}

func mustRun(tb testing.TB, name string, args ...string) {
	tb.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		tb.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}
