package local

import "io"

// ReadExecFrames reads frames until there are no more, and returns how many there were and why it ended.
func ReadExecFrames(r io.Reader) (n int, err error) {
	buf := make([]byte, maxExecFrame)
	for ; ; n++ {
		if _, _, err := readExecFrame(r, buf); err != nil {
			return n, err
		}
	}
}
