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

// New makes the drivers of an edge by their names.
func New(bootID string, log *slog.Logger) (map[string]drivers.Driver, error) {
	raw, err := rawexec.New(rawexec.Config{BootID: bootID, Log: log})
	if err != nil {
		return nil, err
	}
	return map[string]drivers.Driver{rawexec.Name: raw, sim.Name: sim.New(sim.NewSimMachine())}, nil
}

// Names are the drivers that a job may name.
func Names() []string { return []string{rawexec.Name, sim.Name} }

// Configs check the config blocks of tasks before any edge does. The block of a simulated task may
// contain ${…}, so the edge alone reads it.
func Configs() validate.ConfigChecks { return validate.ConfigChecks{rawexec.Name: rawexec.Check} }
