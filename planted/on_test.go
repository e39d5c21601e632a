//go:build planted

package planted_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"skerry/planted"
)

func TestPlant(t *testing.T) {
	if planted.On(planted.ApplyTwice) {
		t.Fatal("a bug is planted that nobody planted")
	}
	restore := planted.Plant(planted.ApplyTwice)
	if !planted.On(planted.ApplyTwice) || planted.On(planted.StaleRead) || planted.Reached() != 1 {
		t.Errorf("the bug that is planted is not the one that is on, or was reached %d times", planted.Reached())
	}
	if got := planted.Environ(); len(got) != 1 || got[0] != planted.Environment+"="+string(planted.ApplyTwice) {
		t.Errorf("a child process is given %q", got)
	}
	inner := planted.Plant(planted.StaleRead)
	if planted.On(planted.ApplyTwice) || !planted.On(planted.StaleRead) {
		t.Error("two bugs are planted, or the older one")
	}
	inner()
	if !planted.On(planted.ApplyTwice) {
		t.Error("the older bug is gone")
	}
	restore()
	if planted.On(planted.ApplyTwice) {
		t.Error("the bug is still planted")
	}
}

// The environment plants from the start; a name that is none ends the process.
func TestEnvironment(t *testing.T) {
	if want := os.Getenv("PLANTED_WANT"); want != "" {
		if !planted.On(planted.Bug(want)) {
			t.Fatalf("%s is not planted", want)
		}
		return
	}
	run := func(name string) (string, error) {
		c := exec.Command(os.Args[0], "-test.run", "^TestEnvironment$")
		c.Env = append(os.Environ(), planted.Environment+"="+name, "PLANTED_WANT="+name)
		out, err := c.CombinedOutput()
		return string(out), err
	}
	if out, err := run(string(planted.StaleRead)); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := run("nosuch"); err == nil || !strings.Contains(out, `plant "nosuch": there is no such bug`) {
		t.Errorf("a bug that is none: %v: %s", err, out)
	}
}
