// Package programs keeps what programs of the machine answered when an edge ran them, such as their versions. Fingerprints ask
// every minute, and tasks wait for the first one: starting a JVM costs a small machine a second of its processor.
//
// An answer counts until another file has the program's name. A file keeps answers for the agent's next start, which uses them
// for the first reading of the machine only: a library of the program may have changed meanwhile. It starts no goroutine.
package programs

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"skerry/internal/durable"
	"skerry/internal/sorting"
)

const (
	// keptFor is the time after Open in which answers of an earlier agent count.
	keptFor = 30 * time.Second
	// maxFile bounds the bytes that are read of the file, maxAnswer those of an answer that is kept in it.
	maxFile   = 1 << 20
	maxAnswer = 4 << 10
	// fileVersion is the version of the file. One of another version is not used.
	fileVersion = 1
)

// Answers are the answers of programs. Its methods may be called from any goroutine.
type Answers struct {
	file   string // "": in memory only
	opened time.Time

	mu      sync.Mutex
	kept    map[key]*answer
	changed bool // since the file was read or written
}

// key is a program and what it was asked.
type key struct{ path, question string }

// answer is an answer with the file that the program had then.
type answer struct {
	asking sync.Mutex // held while the program runs: others wait for the same answer

	// Guarded by asking.
	modified time.Time
	size     int64
	text     string
	known    bool
	earlier  bool // an earlier agent asked
}

// isOf reports whether the answer is that of the program with that file.
func (a *answer) isOf(info fs.FileInfo) bool {
	return a.known && a.size == info.Size() && a.modified.Equal(info.ModTime())
}

// Open reads the answers of a file; "": none are kept. A file that cannot be read is as good as none: the programs are asked.
func Open(file string) *Answers {
	a := &Answers{file: file, opened: time.Now(), kept: make(map[key]*answer)}
	if file != "" {
		a.readFile()
	}
	return a
}

// Ask returns the answer of the program path to a question. It calls run, which runs the program, unless the answer is known.
// An error is not kept.
func (a *Answers) Ask(path, question string, run func() (string, error)) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("find program: %w", err)
	}
	one := a.answerTo(key{path, question})
	one.asking.Lock()
	defer one.asking.Unlock()
	isSame := one.isOf(info)
	if isSame && (!one.earlier || time.Since(a.opened) < keptFor) {
		return one.text, nil
	}
	text, err := run()
	if err != nil {
		return "", err
	}
	isSame = isSame && one.text == text
	one.modified, one.size, one.text, one.known, one.earlier = info.ModTime(), info.Size(), text, true, false
	if !isSame {
		a.mu.Lock()
		a.changed = true
		a.mu.Unlock()
	}
	return text, nil
}

// answerTo returns the answer with that key, which may not be known yet.
func (a *Answers) answerTo(k key) *answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.kept[k]
	if one == nil {
		one = new(answer)
		a.kept[k] = one
	}
	return one
}

// content is the content of the file.
type content struct {
	Version int
	Answers []record
}

// record is an answer in the file.
type record struct {
	Path, Question, Answer string
	Modified               time.Time
	Size                   int64
}

// Save writes the answers to the file, if one has changed. It drops those of programs whose file is gone or another one.
func (a *Answers) Save() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.changed || a.file == "" {
		return nil
	}
	c, isWhole := content{Version: fileVersion}, true
	for k, one := range a.kept {
		if !one.asking.TryLock() {
			isWhole = false // it is being asked: the next Save has it
			continue
		}
		if info, err := os.Stat(k.path); err == nil && one.isOf(info) && len(one.text) <= maxAnswer {
			c.Answers = append(c.Answers, record{k.path, k.question, one.text, one.modified, one.size})
		}
		one.asking.Unlock()
	}
	sorting.Slice(c.Answers, func(x, y record) int {
		return strings.Compare(x.Path+"\x00"+x.Question, y.Path+"\x00"+y.Question)
	})
	b, err := json.Marshal(c)
	if err == nil {
		err = durable.Replace(a.file, b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep what programs answered: %w", err)
	}
	a.changed = !isWhole
	return nil
}

// readFile adds the answers of the file.
func (a *Answers) readFile() {
	f, err := os.Open(a.file)
	if err != nil {
		return
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	var c content
	if err != nil || json.Unmarshal(b, &c) != nil || c.Version != fileVersion {
		return
	}
	for _, r := range c.Answers {
		a.kept[key{r.Path, r.Question}] = &answer{modified: r.Modified, size: r.Size, text: r.Answer, known: true, earlier: true}
	}
}
