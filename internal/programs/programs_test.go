package programs_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"skerry/internal/programs"
)

// asked counts how often a program is run.
type asked struct{ times int }

func (p *asked) run() (string, error) { p.times++; return "version 1", nil }

func mustAsk(t *testing.T, a *programs.Answers, path string, p *asked, times int) {
	t.Helper()
	if text, err := a.Ask(path, "version", p.run); err != nil || text != "version 1" {
		t.Fatalf("the answer is %q, %v", text, err)
	}
	if p.times != times {
		t.Fatalf("it was asked %d times, want %d", p.times, times)
	}
}

func mustWriteProgram(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

// TestAnswersOutliveTheAgent: the next agent asks nothing at first, and asks again later. A program whose file is another one
// is asked at once.
func TestAnswersOutliveTheAgent(t *testing.T) {
	dir := t.TempDir()
	file, program := filepath.Join(dir, "programs.json"), filepath.Join(dir, "program")
	mustWriteProgram(t, program, "one")
	synctest.Test(t, func(t *testing.T) {
		p, first := &asked{}, programs.Open(file)
		mustAsk(t, first, program, p, 1)
		mustAsk(t, first, program, p, 1)
		if err := first.Save(); err != nil {
			t.Fatal(err)
		}
		second := programs.Open(file)
		mustAsk(t, second, program, p, 1)
		time.Sleep(time.Minute)
		mustAsk(t, second, program, p, 2)
		mustAsk(t, second, program, p, 2)
		before, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := second.Save(); err != nil {
			t.Fatal(err)
		}
		if after, err := os.Stat(file); err != nil || !os.SameFile(before, after) {
			t.Errorf("the same answers were written again, %v", err)
		}
		// An answer that an agent does not ask for stays for the next one.
		third := programs.Open(file)
		mustAsk(t, third, os.Args[0], &asked{}, 1)
		if err := third.Save(); err != nil {
			t.Fatal(err)
		}
		mustAsk(t, programs.Open(file), program, p, 2)
		mustWriteProgram(t, program, "another")
		mustAsk(t, programs.Open(file), program, p, 3)
	})
}

// TestAnErrorIsNotKept asks again after an error, and for another question.
func TestAnErrorIsNotKept(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	a := programs.Open("")
	if _, err := a.Ask(program, "version", (&asked{}).run); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing program: %v", err)
	}
	mustWriteProgram(t, program, "one")
	broken := errors.New("it does not start")
	if _, err := a.Ask(program, "version", func() (string, error) { return "", broken }); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	mustAsk(t, a, program, &asked{}, 1)
	if _, err := a.Ask(program, "help", func() (string, error) { return "", broken }); !errors.Is(err, broken) {
		t.Errorf("another question got the same answer: %v", err)
	}
	if err := a.Save(); err != nil {
		t.Error(err)
	}
}

// FuzzOpen opens any file: what is no file of answers counts as none.
func FuzzOpen(f *testing.F) {
	f.Add([]byte(`{"Version":1,"Answers":[{"Path":"/bin/true","Question":"version","Answer":"1","Modified":"2026-01-02T03:04:05Z","Size":7}]}`))
	f.Add([]byte(`{"Version":2}`))
	f.Add([]byte("\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		file, program := filepath.Join(dir, "programs.json"), filepath.Join(dir, "program")
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(program, nil, 0o700); err != nil {
			t.Fatal(err)
		}
		a := programs.Open(file)
		if _, err := a.Ask(program, "version", (&asked{}).run); err != nil {
			t.Fatal(err)
		}
		if err := a.Save(); err != nil {
			t.Fatal(err)
		}
	})
}
