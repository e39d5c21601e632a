//go:build !linux

package tmpfs

func readMounts() ([]entry, error) { return nil, nil }

func hasOwnMounts() bool { return false }

// Attach returns ErrUnavailable.
func Attach(string, string, int) error { return ErrUnavailable }

// Detach does nothing: nothing is mounted.
func (m Mount) Detach() error { return nil }
