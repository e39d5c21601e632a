package main

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain lets the scripts of testdata run this very program as skerry-chaos, also as
// the worker that plays a rehearsal.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"skerry-chaos": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", Condition: func(name string) (bool, error) {
		if name != "cgo" {
			return false, fmt.Errorf("no condition %q", name)
		}
		return hasCgo()
	}})
}

// hasCgo reports whether this program was built with cgo.
func hasCgo() (bool, error) {
	info, ok := debug.ReadBuildInfo()
	i := -1
	if ok {
		i = slices.IndexFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "CGO_ENABLED" })
	}
	if i < 0 {
		return false, errors.New("the program does not say whether it was built with cgo")
	}
	return info.Settings[i].Value == "1", nil
}
