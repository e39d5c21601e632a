// Package java is the driver "java": a task is a program of a Java runtime on the machine, from a jar or a class. It is
// isolated as a task of exec where there is an OCI runtime, otherwise it runs as a task of raw_exec does. Edges run it;
// hubs check config blocks with it. Packages oci and supervised do the work; this package starts no goroutine and
// stores nothing.
package java

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	osexec "os/exec"
	"slices"
	"strings"
	"time"

	"skerry/drivers"
	"skerry/drivers/oci"
	"skerry/drivers/options"
	"skerry/drivers/supervised"
	"skerry/fleet"
	"skerry/internal/programs"
)

// systemFolders are the folders that every isolated task has from the system.
var systemFolders = []string{"/dev", "/proc", "/sys"}

// Name is the driver's name in job files.
const Name = "java"

// describeTimeout bounds the programs that a fingerprint runs.
const describeTimeout = 30 * time.Second

// New makes the driver. If there is a Java runtime, it probes whether tasks can be isolated.
func New(cfg oci.DriverConfig) (*supervised.Driver, error) {
	isolation, err := oci.New(cfg.Isolation)
	if err != nil {
		return nil, err
	}
	p := planner{isolation: isolation, programs: cmp.Or(cfg.Isolation.Programs, programs.Open(""))}
	chroot := cfg.Isolation.Chroot
	if len(chroot) == 0 {
		chroot = oci.DefaultChroot()
	}
	p.mounted = slices.AppendSeq(slices.Clone(systemFolders), maps.Values(chroot))
	capabilities := drivers.Capabilities{
		FSIsolation: drivers.FSNone, HidesEnv: true,
		Networks: []string{fleet.NetworkHost, fleet.NetworkBridge, fleet.NetworkNone, drivers.NetworkCNI},
	}
	if _, err := osexec.LookPath(Name); err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), describeTimeout)
		defer cancel()
		if p.runtime, p.unisolated = isolation.Describe(ctx); p.unisolated == nil {
			capabilities = Capabilities()
		}
	}
	return supervised.New(supervised.Config{
		Name: Name, BootID: cfg.BootID, Log: cfg.Log, Users: true, Check: Check, Build: p.planTask, Fingerprint: p.describeRuntime,
		Capabilities: capabilities,
	})
}

// Capabilities returns the abilities of an isolated task.
func Capabilities() drivers.Capabilities { return oci.Capabilities() }

// settings are the values of a task's config block.
type settings struct {
	jar       string      // "": the program is a class
	arguments []string    // of java
	program   oci.Program // how the task is isolated
}

// isolationKeys are the keys that need an OCI runtime.
var isolationKeys = []string{"pid_mode", "ipc_mode", "cap_add", "cap_drop", "pids_limit"}

// parseSettings reads a task's config block. The error names all its problems.
func parseSettings(config map[string]any) (settings, error) {
	var s settings
	r := options.Read(config)
	jar, class, classPath := r.Text("jar_path"), r.Text("class"), r.Text("class_path")
	s.arguments = r.Texts("jvm_options")
	if classPath != "" {
		s.arguments = append(s.arguments, "-cp", classPath)
	}
	switch {
	case jar == "" && class == "":
		r.Refuse("jar_path or class is required")
	case jar != "" && class != "":
		r.Refuse("jar_path and class exclude each other")
	case jar != "":
		s.jar = jar
		s.arguments = append(s.arguments, "-jar", jar)
	default:
		s.arguments = append(s.arguments, class)
	}
	s.arguments = append(s.arguments, r.Texts("args")...)
	oci.ReadIsolation(r, &s.program)
	return s, r.Err(Name, "it takes jar_path or class, class_path, jvm_options, args, work_dir, pid_mode, ipc_mode, cap_add, cap_drop and pids_limit")
}

// Check returns an error for a config block that works on no machine. Hubs check a job with it when it is
// registered.
func Check(config map[string]any) error {
	_, err := parseSettings(config)
	return err
}

// planner makes the processes of tasks.
type planner struct {
	mounted    []string // folders in an isolated task that are not the task's own
	isolation  *oci.Isolation
	runtime    string // OCI runtime, with its version
	unisolated error  // reason why tasks are not isolated; nil: they are
	programs   *programs.Answers
}

// planTask returns the process of a task.
func (p planner) planTask(ctx context.Context, cfg drivers.TaskConfig) (supervised.Process, error) {
	s, err := parseSettings(cfg.Config)
	if err != nil {
		return supervised.Process{}, err
	}
	env := supervised.Environment(os.Environ(), cfg.Env)
	if p.unisolated == nil {
		if err := p.checkJar(cfg, s); err != nil {
			return supervised.Process{}, err
		}
		s.program.Command, s.program.Args, s.program.Env, s.program.User = Name, s.arguments, env, cfg.User
		return p.isolation.Process(ctx, cfg, s.program)
	}
	for _, key := range isolationKeys {
		if _, given := cfg.Config[key]; given {
			return supervised.Process{}, fleet.Errorf(fleet.CodeInvalid, "config of java: %s needs a container, and %w", key, p.unisolated)
		}
	}
	if err := p.checkJar(cfg, s); err != nil {
		return supervised.Process{}, err
	}
	path, err := supervised.FindProgram(Name, cfg.Dir, env)
	if err != nil {
		return supervised.Process{}, fmt.Errorf("find java: %w", err)
	}
	process := supervised.Process{
		Path: path, Argv: append([]string{Name}, s.arguments...), Env: env, Dir: cfg.Dir, Namespace: cfg.Network.Namespace,
	}
	if s.program.WorkDir != "" {
		process.Dir = s.program.WorkDir
	}
	if err := process.UseUser(cfg); err != nil {
		return supervised.Process{}, err
	}
	return process, process.UseCgroup(cfg)
}

// checkJar checks the jar of a task, if it has one.
func (p planner) checkJar(cfg drivers.TaskConfig, s settings) error {
	if s.jar == "" {
		return nil
	}
	if p.unisolated != nil {
		return checkJar(cfg, s.jar, cmp.Or(s.program.WorkDir, cfg.Dir), false, nil)
	}
	mounted := slices.Clone(p.mounted)
	for _, m := range cfg.Mounts {
		mounted = append(mounted, m.Target)
	}
	return checkJar(cfg, s.jar, cmp.Or(s.program.WorkDir, "/"), true, mounted)
}

// describeRuntime returns the version of the Java runtime and whether tasks are isolated.
func (p planner) describeRuntime(ctx context.Context) fleet.DriverInfo {
	path, err := osexec.LookPath(Name)
	if err != nil {
		return fleet.DriverInfo{HealthDescription: "no Java runtime is installed: there is no program java in PATH"}
	}
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	out, err := p.programs.Ask(path, "-version", func() (string, error) {
		b, err := osexec.CommandContext(ctx, path, "-version").CombinedOutput()
		return string(b), err
	})
	if err != nil {
		return fleet.DriverInfo{Detected: true, HealthDescription: fmt.Sprintf("java -version failed: %v", err)}
	}
	info := fleet.DriverInfo{Detected: true, Healthy: true, HealthDescription: "Healthy", Attributes: parseVersion(out)}
	if p.unisolated != nil {
		info.HealthDescription = fmt.Sprintf("Healthy, but its tasks are not isolated: %v", p.unisolated)
		return info
	}
	info.Attributes["driver.java.isolation"] = p.runtime
	if err := p.isolation.CheckFolders(); err != nil {
		info.Healthy, info.HealthDescription = false, err.Error()
	}
	return info
}

// parseVersion returns the attributes of a Java runtime from the output of java -version.
func parseVersion(out string) map[string]string {
	attributes := map[string]string{"driver.java": "1"}
	var lines []string
	for line := range strings.Lines(out) {
		// A runtime that takes options from the environment prints a line about them first.
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "Picked up ") {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return attributes
	}
	if _, rest, ok := strings.Cut(lines[0], `"`); ok {
		version, _, _ := strings.Cut(rest, `"`)
		attributes["driver.java.version"] = version
	}
	for i, name := range []string{"driver.java.runtime", "driver.java.vm"} {
		if len(lines) > i+1 {
			attributes[name] = lines[i+1]
		}
	}
	return attributes
}
