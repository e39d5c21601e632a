package main

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
)

// maxSubject is how many letters the subject of a commit may have.
const maxSubject = 72

// checkedCommits is how many of the newest commits --check looks at: older ones stay as they are.
const checkedCommits = 50

// subjectForm is `scope: imperative summary`; of the mood nothing can be checked but that the
// summary begins with a small letter.
var subjectForm = regexp.MustCompile(`^[a-zA-Z0-9/_.,* -]+: \S`)

// commitSubjects are those of the newest commits, newest first; count 0: of all.
func commitSubjects(count int) ([]string, error) {
	args := []string{"log", "--no-merges", "--format=%s"}
	if count > 0 {
		args = append(args, fmt.Sprintf("--max-count=%d", count))
	}
	said, err := exec.Command("git", args...).Output()
	if err != nil {
		return nil, fmt.Errorf("read the subjects of commits: %w", err)
	}
	return strings.Split(strings.TrimSpace(string(said)), "\n"), nil
}

func checkSubjects(subjects []string) error {
	var wrong []error
	for _, s := range subjects {
		switch {
		case len([]rune(s)) > maxSubject:
			wrong = append(wrong, fmt.Errorf("commit %q: its subject has %d letters, at most %d are allowed", s, len([]rune(s)), maxSubject))
		case !subjectForm.MatchString(s):
			wrong = append(wrong, fmt.Errorf("commit %q: its subject is not of the form `scope: imperative summary`", s))
		}
	}
	return errors.Join(wrong...)
}
