package supervised

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"skerry/drivers/logfile"
)

// output copies one of the task's two output streams from its FIFO to log files. With disabled logs it only reads the FIFO, by which a
// later supervisor finds the task.
type output struct {
	fifo  *os.File
	files io.WriteCloser
	buf   []byte
}

// outputBuffer is the size in bytes of the buffer of an output.
const outputBuffer = 16 << 10

// openOutputs opens the FIFOs of both streams. It copies nothing yet.
func (s *supervisor) openOutputs() error {
	for _, name := range []string{stdoutFIFO, stderrFIFO} {
		fifo, err := openFIFO(s.dir, name)
		if err != nil {
			return err
		}
		o := &output{fifo: fifo, buf: make([]byte, outputBuffer), files: nowhere{io.Discard}}
		if !s.spec.LogsDisabled {
			o.files = &logfile.Rotator{
				Dir: s.spec.LogDir, Prefix: s.spec.LogName + "." + name,
				MaxFiles: s.spec.LogFiles, MaxBytes: s.spec.LogFileBytes,
			}
		}
		s.outputs = append(s.outputs, o)
	}
	return nil
}

// nowhere takes the output of a task with disabled logs.
type nowhere struct{ io.Writer }

func (nowhere) Close() error { return nil }

// copyUntilStopped copies the task's output to the log files until stopCopying is called. The FIFO has no end,
// because both the task and the supervisor hold it open for writing.
func (o *output) copyUntilStopped() {
	for {
		n, err := o.fifo.Read(o.buf)
		_, _ = o.files.Write(o.buf[:n]) // never fails
		if err != nil {
			return
		}
	}
}

// stopCopying makes copyUntilStopped return. It does not wait for that.
func (o *output) stopCopying() { _ = o.fifo.SetReadDeadline(time.Unix(1, 0)) }

// drainAndClose copies the bytes that are left in the FIFO after copyUntilStopped has returned, and closes the
// files.
func (o *output) drainAndClose() {
	_ = o.fifo.SetReadDeadline(time.Time{})
	conn, err := o.fifo.SyscallConn()
	if err == nil {
		_ = conn.Read(func(fd uintptr) bool {
			for {
				n, err := unix.Read(int(fd), o.buf)
				if errors.Is(err, unix.EINTR) {
					continue
				}
				if err != nil || n == 0 {
					return true
				}
				_, _ = o.files.Write(o.buf[:n])
			}
		})
	}
	_ = o.files.Close()
	_ = o.fifo.Close()
}
