package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"

	"skerry/chaos/proc"
)

// onDisks are the commands of scripts that need a file system of their own.
var onDisks = map[string]func(*testscript.TestScript, bool, []string){"disk": mountDisk, "fill": fill, "flood": flood, "cutpower": cutPower}

// cutPower kills the agent of a data directory with everything that it started.
func cutPower(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: cutpower FOLDER")
	}
	ts.Check(proc.KillBelow(ts.MkAbs(args[0])))
}

// mountDisk mounts a file system of its own until the script ends, or mounts the one
// that is there again: with another size, or read-only ("ro").
func mountDisk(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: disk FOLDER SIZE|ro")
	}
	path, options := ts.MkAbs(args[0]), "size="+args[1]
	flags := uintptr(0)
	if args[1] == "ro" {
		flags, options = syscall.MS_RDONLY, ""
	}
	if _, err := os.Stat(path); err == nil {
		ts.Check(syscall.Mount("", path, "", flags|syscall.MS_REMOUNT, options))
		return
	}
	ts.Check(os.Mkdir(path, 0o755))
	ts.Check(syscall.Mount("tmpfs", path, "tmpfs", flags, options))
	ts.Defer(func() {
		// Lazily: a task that outlives a script that failed still has files there.
		ts.Check(syscall.Unmount(path, syscall.MNT_DETACH))
	})
}

// fill writes a file until there is no room left beside it.
func fill(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: fill FOLDER")
	}
	f, err := os.Create(filepath.Join(ts.MkAbs(args[0]), "filler"))
	ts.Check(err)
	defer f.Close()
	for chunk := make([]byte, 4096); err == nil; {
		_, err = f.Write(chunk)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		ts.Fatalf("fill the disk: %v", err)
	}
}

// flood registers large jobs at the hub at SKERRY_ADDR until it refuses one, and
// sets JOBS to how many it took.
func flood(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: flood")
	}
	const most = 200
	for i := range most {
		body := fmt.Sprintf(`{"Job": {"ID": "flood-%d", "Datacenters": ["nowhere"], "Meta": {"bulk": %q}, "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "sim"}]}]}}`,
			i, strings.Repeat("x", 700_000))
		answer, err := http.Post(ts.Getenv("SKERRY_ADDR")+"/v1/jobs", "application/json", strings.NewReader(body))
		var text []byte
		if err == nil {
			text, err = io.ReadAll(answer.Body)
			err = errors.Join(err, answer.Body.Close())
		}
		switch {
		case err != nil || answer.StatusCode >= http.StatusInternalServerError:
			ts.Setenv("JOBS", fmt.Sprint(i))
			return
		case answer.StatusCode != http.StatusOK:
			ts.Fatalf("large job %d: %s: %.300s", i, answer.Status, text)
		}
	}
	ts.Fatalf("%d large jobs fit on a full disk", most)
}
