package supervised

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// ProgramFacts keeps what was found out about a program by running it, until another file has its name. Fingerprints
// ask every minute, and starting a JVM costs a small machine a second of its processor.
type ProgramFacts[T any] struct {
	mu       sync.Mutex // held while the program runs: others wait for the same answer
	path     string
	modified time.Time
	size     int64
	facts    T
}

// Read returns the facts about the program path. It calls ask, which runs the program, if its file is another one than
// at the last call. An error is not kept.
func (p *ProgramFacts[T]) Read(path string, ask func() (T, error)) (facts T, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return facts, fmt.Errorf("find program: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.path == path && p.size == info.Size() && p.modified.Equal(info.ModTime()) {
		return p.facts, nil
	}
	if facts, err = ask(); err == nil {
		p.path, p.modified, p.size, p.facts = path, info.ModTime(), info.Size(), facts
	}
	return facts, err
}
