package observe

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxLine bounds the length of a line, and the amount that is read at a time, in bytes.
const maxLine = 64 << 20

// FileTail reads the lines that another process appends to a file. It keeps its position; the file is open only
// during Next.
type FileTail struct {
	Path string
	read int64 // bytes of whole lines that were read
}

// Next calls each with every whole line that was added since the last call, up to the first error. It leaves an
// unfinished line for a later call. A missing file has no lines. The line is valid only during the call.
func (t *FileTail) Next(each func(line []byte) error) error {
	f, err := os.Open(t.Path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		text, err := io.ReadAll(io.NewSectionReader(f, t.read, maxLine))
		whole := text[:bytes.LastIndexByte(text, '\n')+1]
		if len(whole) == 0 && len(text) == maxLine {
			err = fmt.Errorf("read %s: a line is longer than %d bytes", t.Path, maxLine)
		}
		if len(whole) == 0 && err == nil {
			return nil
		}
		for line := range bytes.Lines(whole) {
			if err == nil {
				err = each(line)
			}
		}
		if t.read += int64(len(whole)); err != nil {
			return fmt.Errorf("up to byte %d: %w", t.read, err)
		}
	}
}
