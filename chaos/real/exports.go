package real

import (
	"skerry/chaos/check"
	"skerry/chaos/observe"
)

// openHubExports opens a reader for the file in which each hub exports its applied entries.
func (w *fleetWatcher) openHubExports() {
	w.reading.Lock()
	defer w.reading.Unlock()
	for _, h := range w.s.fleet.Hubs {
		if h.Told != "" {
			w.hubExports = append(w.hubExports, observe.NewEntryReader(h.Name, h.Told))
		}
	}
}

// pauseAppliedEntries judges the entries exported so far, and holds back later ones until
// resumeAppliedEntries. Restored hubs apply other entries at old indexes, which may be judged only
// after the end of the Restore fault was recorded.
func (w *fleetWatcher) pauseAppliedEntries() {
	w.judgeAppliedEntries()
	w.reading.Lock()
	defer w.reading.Unlock()
	w.exportsPaused = true
}

// resumeAppliedEntries ends pauseAppliedEntries and judges the entries that were held back.
func (w *fleetWatcher) resumeAppliedEntries() {
	w.reading.Lock()
	w.exportsPaused = false
	w.reading.Unlock()
	w.judgeAppliedEntries()
}

// judgeAppliedEntries reads the entries that hubs have exported since the last call and has them
// judged. It does nothing while paused.
func (w *fleetWatcher) judgeAppliedEntries() {
	w.reading.Lock()
	defer w.reading.Unlock()
	if w.exportsPaused {
		return
	}
	for _, t := range w.hubExports {
		err := t.Next(w.Monitor.Wants, func(a *check.Applied) { w.Observe(check.Observation{Applied: a}) })
		if err != nil && w.exportErr == nil {
			w.exportErr = err
		}
	}
}

// exportReadError returns the first error of reading the exported entries; nil: none.
func (w *fleetWatcher) exportReadError() error {
	w.reading.Lock()
	defer w.reading.Unlock()
	return w.exportErr
}
