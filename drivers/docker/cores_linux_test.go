package docker_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKeepOffCores: a running container leaves the cores that others have reserved, and gets them back.
func TestKeepOffCores(t *testing.T) {
	forEachDaemon(t, func(t *testing.T, d *daemon) {
		const show = "sed -n s/Cpus_allowed_list:.//p /proc/self/status"
		cfg := newTaskConfig(t, "web", show, "while [ ! -e /local/off ]; do sleep 0.1; done", show, "while [ ! -e /local/on ]; do sleep 0.1; done", show)
		driver := d.mustDriver(t, "boot")
		_, task := mustStart(t, driver, cfg)
		exits := waiting(t, task) // which reads its output
		for i, step := range []struct {
			file     string
			reserved []int
		}{{"off", []int{0}}, {"on", nil}} {
			pollUntil(t, func() (bool, string) { logs := readLogs(cfg); return strings.Count(logs, "\n") > i, logs })
			if err := driver.KeepOffCores(t.Context(), cfg, step.reserved); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(cfg.LocalDir, step.file), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		mustExit(t, exits)
		if got := strings.Fields(readLogs(cfg)); len(got) != 3 || strings.HasPrefix(got[1], "0") || got[0] != got[2] {
			t.Errorf("it had the cores %v", got)
		}
	})
}
