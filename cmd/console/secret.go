package console

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// maxSecret bounds a secret that is typed, in bytes.
const maxSecret = 16 << 10

// ReadSecret reads a line that nobody may see. On a terminal it asks for it, and the terminal does not show it.
func ReadSecret(in io.Reader, prompt io.Writer, question string) (string, error) {
	var line []byte
	var err error
	if f, ok := in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprint(prompt, question)
		line, err = term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(prompt)
	} else {
		line, err = bufio.NewReaderSize(io.LimitReader(in, maxSecret), maxSecret).ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	secret := strings.TrimSpace(string(line))
	if err == nil && secret == "" {
		err = errors.New("there is none on the standard input")
	}
	return secret, err
}
