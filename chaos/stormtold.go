package chaos

import (
	"skerry/chaos/check"
	"skerry/chaos/observe"
)

// listen begins to read what hubs tell of themselves.
func (w *watch) listen() {
	w.reading.Lock()
	defer w.reading.Unlock()
	for _, h := range w.s.fleet.Hubs {
		if h.Told != "" {
			w.told = append(w.told, observe.NewTold(h.Name, h.Told))
		}
	}
}

// hold has what hubs tell from now on wait for release: those that are put back tell of
// their new past, while what they show still counts as being between two.
func (w *watch) hold() {
	w.entries()
	w.reading.Lock()
	defer w.reading.Unlock()
	w.held = true
}

func (w *watch) release() {
	w.reading.Lock()
	w.held = false
	w.reading.Unlock()
	w.entries()
}

// entries has everything judged that hubs applied until now, as far as they told of it.
func (w *watch) entries() {
	w.reading.Lock()
	defer w.reading.Unlock()
	if w.held {
		return
	}
	for _, t := range w.told {
		err := t.Next(w.monitor.Wants, func(a *check.Applied) { w.judge(check.Observation{Applied: a}) })
		if err != nil && w.deaf == nil {
			w.deaf = err
		}
	}
}

// unheard is why it is not known what hubs applied; nil: it is.
func (w *watch) unheard() error {
	w.reading.Lock()
	defer w.reading.Unlock()
	return w.deaf
}
