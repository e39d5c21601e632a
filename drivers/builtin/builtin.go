// Package builtin makes the task drivers of this release. The edge runs them; the hub and the commands
// that read job files know their names and check their config blocks. It starts no goroutine.
package builtin

import (
	"log/slog"

	"skerry/drivers"
	"skerry/drivers/rawexec"
	"skerry/drivers/sim"
	"skerry/fleet/validate"
)

// New makes the drivers that an edge can run, by their names in job files. bootID is the kernel's boot id; "":
// raw_exec reads it.
func New(bootID string, log *slog.Logger) (map[string]drivers.Driver, error) {
	raw, err := rawexec.New(rawexec.Config{BootID: bootID, Log: log})
	if err != nil {
		return nil, err
	}
	return map[string]drivers.Driver{rawexec.Name: raw, sim.Name: sim.New(sim.NewSimMachine())}, nil
}

// Names returns the names of the drivers that a job may name.
func Names() []string { return []string{rawexec.Name, sim.Name} }

// Configs returns, by driver, the functions with which hubs check the config blocks of tasks before any edge
// does. The block of a simulated task may contain ${…}, so only the edge checks it.
func Configs() validate.ConfigChecks { return validate.ConfigChecks{rawexec.Name: rawexec.Check} }
