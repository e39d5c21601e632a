package supervised

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// FindProgram returns the path of a command's program: in the task's folder dir if there is such a file,
// otherwise in PATH of the task's environment env.
func FindProgram(command, dir string, env []string) (string, error) {
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

// withheld are the agent's settings and credentials in its environment, which no task gets. A name that ends in _ is a
// prefix.
var withheld = []string{
	"SKERRY_", "NOMAD_", "CONSUL_TOKEN", "CONSUL_HTTP_TOKEN", "VAULT_TOKEN",
	"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS",
	"NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_PID", "WATCHDOG_USEC",
	"JOURNAL_STREAM", "INVOCATION_ID", "GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GODEBUG", "GOTRACEBACK",
}

// Environment returns the agent's environment without the withheld and the denied variables, overlaid with the
// task's, sorted.
func Environment(agent []string, task map[string]string, denied ...string) []string {
	merged := make(map[string]string, len(agent)+len(task))
next:
	for _, kv := range agent {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" || slices.Contains(denied, k) {
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
	for _, k := range slices.Sorted(maps.Keys(merged)) {
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
