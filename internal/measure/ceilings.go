package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// figures are what has a ceiling in each package.
type figures struct {
	oneWordMethods int // unexported methods with a one-word name
	undocumented   int // exported names without a comment
	longComments   int // comments on declarations of more than maxCommentLines lines
}

const maxCommentLines = 3

func (s *moduleSource) packageFigures() map[string]figures {
	all := map[string]figures{}
	for _, f := range s.files {
		p := all[f.folderPath()]
		f.unexportedMethods(func(name, _ string) {
			if isOneWord(name) {
				p.oneWordMethods++
			}
		})
		f.exportedNames(func(_ string, documented bool) {
			if !documented {
				p.undocumented++
			}
		})
		p.longComments += f.longComments(maxCommentLines)
		all[f.folderPath()] = p
	}
	return all
}

const ceilingsHeader = `# The ceilings of each package: unexported methods with a one-word name, exported names without
# a comment, comments on declarations of more than three lines. They only go down: make measure-record.
`

func readCeilings(path string) (map[string]figures, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the ceilings: %w", err)
	}
	ceilings := map[string]figures{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		var folder string
		var c figures
		if _, err := fmt.Sscan(line, &folder, &c.oneWordMethods, &c.undocumented, &c.longComments); err != nil {
			return nil, fmt.Errorf("read the ceilings: line %q: %w", strings.TrimSpace(line), err)
		}
		ceilings[folder] = c
	}
	return ceilings, nil
}

// checkCeilings names each figure that is above its ceiling. A package that has none recorded
// has a ceiling of zero.
func checkCeilings(path string, now map[string]figures) error {
	ceilings, err := readCeilings(path)
	if err != nil {
		return err
	}
	var above []error
	for _, folder := range slices.Sorted(maps.Keys(now)) {
		is, may := now[folder], ceilings[folder]
		for _, f := range []struct {
			name    string
			is, may int
		}{
			{"unexported methods with a one-word name", is.oneWordMethods, may.oneWordMethods},
			{"exported names without a comment", is.undocumented, may.undocumented},
			{fmt.Sprintf("comments of more than %d lines", maxCommentLines), is.longComments, may.longComments},
		} {
			if f.is > f.may {
				above = append(above, fmt.Errorf("%s: %d %s, at most %d are allowed", folder, f.is, f.name, f.may))
			}
		}
	}
	return errors.Join(above...)
}

// recordCeilings lowers the ceilings to the figures of now; without a file it begins one.
func recordCeilings(path string, now map[string]figures) error {
	ceilings, err := readCeilings(path)
	if errors.Is(err, os.ErrNotExist) {
		ceilings, err = now, nil
	}
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(ceilingsHeader)
	for _, folder := range slices.Sorted(maps.Keys(now)) {
		is, may := now[folder], ceilings[folder]
		lowest := figures{min(is.oneWordMethods, may.oneWordMethods), min(is.undocumented, may.undocumented), min(is.longComments, may.longComments)}
		if lowest != (figures{}) {
			fmt.Fprintf(&b, "%-28s %4d %4d %4d\n", folder, lowest.oneWordMethods, lowest.undocumented, lowest.longComments)
		}
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}
