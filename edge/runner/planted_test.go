//go:build planted

package runner_test

import (
	"testing"
	"testing/synctest"

	"skerry/fleet"
	"skerry/planted"
)

func TestPlantedStartTwice(t *testing.T) {
	restart := func(run ...string) {
		inVirtualTime(t, allocOf(fleet.JobTypeService, nil, task("a", nil)), func(m *machine) {
			a := m.startRunner(m.mustRunner())
			synctest.Wait()
			a.detachAgent()
			m.startRunner(m.mustRunner())
			synctest.Wait()
			if n := len(m.world.Running()); n != len(run) {
				t.Errorf("%d processes run, want %d", n, len(run))
			}
			m.mustStarts(run...)
		})
	}
	restart("a/1")
	defer planted.Plant(planted.StartTwice)()
	restart("a/1", "a/2")
}
