package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain lets the scripts of testdata run this very program as skerry-chaos, also as
// the worker that plays a rehearsal.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"skerry-chaos": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script"})
}
