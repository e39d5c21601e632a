package volumes

// Die releases the locks of a hook as the end of its process does.
func (h *Hook) Die() {
	h.locks.mu.Lock()
	defer h.locks.mu.Unlock()
	for _, held := range h.locks.held {
		_ = held.file.Close()
	}
}
