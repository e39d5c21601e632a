package allocs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"skerry/fleet"
	"skerry/internal/durable"
	"skerry/syncproto"
)

// specFile is the name of a file with an allocation and its job, encoded as a hub would deliver them. It lies
// in the allocation's folder below TasksDir until the allocation ends. If both the journal and the cluster have
// lost the allocation, only this file describes the running tasks.
const specFile = ".allocation"

// keepSpec writes the specFile of an allocation if its content has changed. An error is only logged, so that the
// allocation starts.
func (a *Allocs) keepSpec(w fleet.Alloc) {
	if a.cfg.TasksDir == "" {
		return
	}
	if err := writeSpec(a.specPath(w.ID), w); err != nil {
		a.log.Warn("specification of an allocation not written: only the journal has it", "alloc_id", string(w.ID), "error", err)
	}
}

// specPath returns the path of an allocation's specFile.
func (a *Allocs) specPath(id fleet.AllocID) string {
	return filepath.Join(a.cfg.TasksDir, string(id), specFile)
}

// writeSpec writes an allocation with its job to the file at path, durably, unless the file has that already.
func writeSpec(path string, w fleet.Alloc) error {
	job, err := syncproto.EncodeJob(w.Job)
	if err != nil {
		return err
	}
	spec, err := syncproto.EncodeMessage(syncproto.Desired{
		Run: []syncproto.DesiredAlloc{{
			ID: w.ID, Namespace: w.Namespace, JobID: w.JobID, JobVersion: w.JobVersion, JobHash: w.JobHash, TaskGroup: w.TaskGroup,
			Name: w.Name, NodeName: w.NodeName, Resources: w.AllocatedResources, Allotment: w.Allotment, Previous: w.PreviousAllocation,
			CreateIndex: w.CreateIndex, ModifyIndex: w.AllocModifyIndex, Deployment: w.DeploymentID,
		}},
		Bodies: []syncproto.Body{{Hash: w.JobHash, Job: job}},
	})
	if err != nil {
		return err
	}
	if held, err := os.ReadFile(path); err == nil && bytes.Equal(held, spec) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return durable.Replace(path, spec, 0o600)
}

// adoptLostAllocs journals allocations that have a specFile and that the journal has lost. It removes
// the specFile of an ended allocation while the journal still knows its end.
func (a *Allocs) adoptLostAllocs(ctx context.Context) error {
	if a.cfg.TasksDir == "" {
		return nil
	}
	folders, err := os.ReadDir(a.cfg.TasksDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("find allocations that the journal lost: %w", err)
	}
	desired, err := a.readDesired(ctx)
	if err != nil {
		return err
	}
	states := a.cfg.Journal.States()
	for _, folder := range folders {
		id := fleet.AllocID(folder.Name())
		_, wanted := desired[id]
		state, known := states[id]
		if state.Terminal() {
			if err := os.Remove(a.specPath(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove the specification of ended allocation %s: %w", fleet.Short(id), err)
			}
		}
		if wanted || known {
			continue
		}
		spec, err := readSpec(a.specPath(id), id)
		if err != nil {
			a.log.Warn("a folder's allocation is unknown to the journal and has no specification", "alloc_id", string(id), "error", err)
			continue
		}
		if err := a.cfg.Journal.Adopt(ctx, spec); err != nil {
			return fmt.Errorf("adopt allocation %s: %w", fleet.Short(id), err)
		}
		a.log.Warn("adopted an allocation that the journal had lost", "alloc_id", string(id))
	}
	return nil
}

// readSpec reads a specFile: a delivery with one allocation, which must be id.
func readSpec(path string, id fleet.AllocID) (syncproto.Desired, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return syncproto.Desired{}, err
	}
	m, err := syncproto.DecodeMessage(syncproto.FrameDesired, b)
	if err != nil {
		return syncproto.Desired{}, err
	}
	spec, ok := m.(syncproto.Desired)
	if !ok || len(spec.Run) != 1 || spec.Run[0].ID != id {
		return syncproto.Desired{}, fmt.Errorf("read %s: it describes another allocation", path)
	}
	return spec, nil
}
