package rawexec

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"skerry/drivers"
	"skerry/fleet"
)

// Bounds of log files if a job sets none.
const (
	defaultLogFiles  = 10
	defaultLogFileMB = 10
)

// options are the values of a task's config block.
type options struct {
	command string
	args    []string
}

// parseOptions reads a task's config block. The error names everything that is wrong with it.
func parseOptions(config map[string]any) (options, error) {
	var o options
	var wrong []string
	for _, key := range sortedKeys(config) {
		value := config[key]
		switch key {
		case "command":
			s, ok := textOf(value)
			if !ok {
				wrong = append(wrong, "command must be a string, not "+kindOf(value))
			}
			o.command = s
		case "args":
			args, err := stringList(value)
			if err != nil {
				wrong = append(wrong, "args "+err.Error())
			}
			o.args = args
		default:
			wrong = append(wrong, fmt.Sprintf("unknown key %q", key))
		}
	}
	if _, given := config["command"]; !given || (o.command == "" && len(wrong) == 0) {
		wrong = append(wrong, "command is required")
	}
	for _, s := range append([]string{o.command}, o.args...) {
		if strings.ContainsRune(s, 0) {
			wrong = append(wrong, "command and args cannot hold a NUL byte")
			break
		}
	}
	if len(wrong) > 0 {
		return options{}, fleet.Errorf(fleet.CodeInvalid, "config of %s: %s", Name, strings.Join(wrong, "; ")).
			WithHint("it takes command (a string) and args (a list of strings)")
	}
	return o, nil
}

// stringList returns a config value as a list of strings; nil gives none.
func stringList(value any) ([]string, error) {
	switch list := value.(type) {
	case nil:
		return nil, nil
	case []string:
		return list, nil
	case []any:
		out := make([]string, 0, len(list))
		for i, v := range list {
			s, ok := textOf(v)
			if !ok {
				return nil, fmt.Errorf("must be a list of strings, but element %d is %s", i+1, kindOf(v))
			}
			out = append(out, s)
		}
		return out, nil
	}
	return nil, fmt.Errorf("must be a list of strings, not %s", kindOf(value))
}

// textOf returns a config value as text; false: it has another type. Numbers and booleans are accepted, because
// people write args = ["--port", 8080].
func textOf(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case json.Number:
		if whole, err := v.Int64(); err == nil {
			return strconv.FormatInt(whole, 10), true
		}
		f, err := v.Float64()
		return strconv.FormatFloat(f, 'f', -1, 64), err == nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	case int, int64, uint64:
		return fmt.Sprint(v), true
	}
	return "", false
}

// kindOf returns the type of a config value for people.
func kindOf(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case string:
		return "a string"
	case bool:
		return "true or false"
	case []any:
		return "a list"
	case map[string]any:
		return "a map"
	}
	return "a number"
}

// findProgram returns the path of a command's program: in the task's folder dir if there is such a file,
// otherwise in PATH of the task's environment env.
func findProgram(command, dir string, env []string) (string, error) {
	if filepath.IsAbs(command) {
		return command, checkExecutable(command)
	}
	local := filepath.Join(dir, command)
	if checkExecutable(local) == nil {
		return local, nil
	}
	if strings.ContainsRune(command, filepath.Separator) {
		return "", checkExecutable(local)
	}
	for _, folder := range filepath.SplitList(lookupEnv(env, "PATH")) {
		if p := filepath.Join(folder, command); filepath.IsAbs(folder) && checkExecutable(p) == nil {
			return p, nil
		}
	}
	return "", &exec.Error{Name: command, Err: exec.ErrNotFound}
}

// checkExecutable returns an error if there is no file at path that may be executed.
func checkExecutable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return &os.PathError{Op: "execute", Path: path, Err: os.ErrPermission}
	}
	return nil
}

// withheld are the agent's environment variables that no task gets: its settings and credentials. A name that
// ends in _ is a prefix.
var withheld = []string{
	"SKERRY_", "NOMAD_", "CONSUL_TOKEN", "CONSUL_HTTP_TOKEN", "VAULT_TOKEN",
	"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS",
	"NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_PID", "WATCHDOG_USEC",
	"JOURNAL_STREAM", "INVOCATION_ID", "GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GODEBUG", "GOTRACEBACK",
}

// taskEnvironment returns the agent's environment without the withheld variables, overlaid with the task's,
// sorted.
func taskEnvironment(agent []string, task map[string]string) []string {
	merged := make(map[string]string, len(agent)+len(task))
next:
	for _, kv := range agent {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			continue
		}
		for _, w := range withheld {
			if k == w || strings.HasSuffix(w, "_") && strings.HasPrefix(k, w) {
				continue next
			}
		}
		merged[k] = v
	}
	for k, v := range task {
		merged[k] = v
	}
	env := make([]string, 0, len(merged))
	for _, k := range sortedKeys(merged) {
		env = append(env, k+"="+merged[k])
	}
	return env
}

// lookupEnv returns the value of the variable key in env ("NAME=value"); "" if it is not set.
func lookupEnv(env []string, key string) string {
	for _, kv := range env {
		if k, v, _ := strings.Cut(kv, "="); k == key {
			return v
		}
	}
	return ""
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// newSpec makes the spec of a task, by which its supervisor runs it. It writes nothing.
func newSpec(cfg drivers.TaskConfig, bootID string) (spec, error) {
	o, err := parseOptions(cfg.Config)
	if err != nil {
		return spec{}, err
	}
	if _, err := drivers.ParseSignal(cfg.KillSignal); err != nil {
		return spec{}, err
	}
	env := taskEnvironment(os.Environ(), cfg.Env)
	path, err := findProgram(o.command, cfg.Dir, env)
	if err != nil {
		return spec{}, fmt.Errorf("find command of task %s: %w", cfg.ID, err)
	}
	files, mb := cfg.Logs.MaxFiles, cfg.Logs.MaxFileSizeMB
	if files <= 0 {
		files = defaultLogFiles
	}
	if mb <= 0 {
		mb = defaultLogFileMB
	}
	return spec{
		Version: recordVersion, TaskID: cfg.ID, BootID: bootID,
		Path: path, Argv: append([]string{o.command}, o.args...), Env: env, Dir: cfg.Dir,
		LogDir: cfg.LogDir, LogName: cfg.Task, LogFiles: files, LogFileBytes: int64(mb) << 20,
	}, nil
}
