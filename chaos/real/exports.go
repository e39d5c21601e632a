package real

import (
	"skerry/chaos/check"
	"skerry/chaos/observe"
)

// openHubExports begins to read what hubs tell of themselves.
func (w *fleetWatcher) openHubExports() {
	w.reading.Lock()
	defer w.reading.Unlock()
	for _, h := range w.s.fleet.Hubs {
		if h.Told != "" {
			w.hubExports = append(w.hubExports, observe.NewEntryReader(h.Name, h.Told))
		}
	}
}

// pauseAppliedEntries has what hubs tell from now on wait for release: those that are put back tell of
// their new past, while what they show still counts as being between two.
func (w *fleetWatcher) pauseAppliedEntries() {
	w.judgeAppliedEntries()
	w.reading.Lock()
	defer w.reading.Unlock()
	w.exportsPaused = true
}

func (w *fleetWatcher) resumeAppliedEntries() {
	w.reading.Lock()
	w.exportsPaused = false
	w.reading.Unlock()
	w.judgeAppliedEntries()
}

// judgeAppliedEntries has everything judged that hubs applied until now, as far as they told of it.
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

// exportReadError is why it is not known what hubs applied; nil: it is.
func (w *fleetWatcher) exportReadError() error {
	w.reading.Lock()
	defer w.reading.Unlock()
	return w.exportErr
}
