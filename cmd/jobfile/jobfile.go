// Package jobfile reads job files, and the files that they name by the functions file, fileset and their
// like. It starts no goroutine, and writes nothing.
package jobfile

import (
	"io"
	"os"
	"strings"

	"skerry/fleet"
)

// ReadFile reads a file of a bounded size.
func ReadFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		e := &fleet.Error{Code: fleet.CodeNotFound, Message: err.Error()}
		if strings.Contains(name, "://") {
			e.Hint = "files are read from this machine; one from elsewhere goes in by the standard input: curl -fsS URL | skerry job run -"
		}
		return nil, e
	}
	defer file.Close()
	src, err := io.ReadAll(io.LimitReader(file, fleet.MaxJobSize+1))
	if err != nil {
		return nil, &fleet.Error{Code: fleet.CodeInvalid, Message: err.Error()} // names the file
	}
	if len(src) > fleet.MaxJobSize {
		return nil, fleet.Errorf(fleet.CodeInvalid, "%s has more than %d bytes", name, fleet.MaxJobSize).
			WithHint("split it into several jobs, or let its tasks fetch large data")
	}
	return src, nil
}
