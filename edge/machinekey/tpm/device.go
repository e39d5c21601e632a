package tpm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"skerry/edge/machinekey"
	"skerry/fleet"
)

// DefaultDevice is the TPM 2.0 of the machine, by the kernel's resource manager.
const DefaultDevice = "/dev/tpmrm0"

const (
	// deviceWait is how long the device of a TPM that has sealed a key may take to appear after a boot.
	deviceWait         = 3 * time.Second
	deviceWaitInterval = 50 * time.Millisecond
	// commandTimeout bounds a command. Slow TPMs take some seconds for the first one, after their self-test.
	commandTimeout = 30 * time.Second
	// maxResponse is the largest response of a TPM, and headerBytes the length of what each begins with.
	maxResponse = 4096
	headerBytes = 10
)

// device is a connection to a TPM. It implements transport.TPM.
type device struct {
	conn interface {
		io.ReadWriteCloser
		SetDeadline(t time.Time) error
	}
}

// openDevice opens the device of a TPM, for which it waits if it is not there. ErrAbsent: it is not there.
func openDevice(path string, wait time.Duration) (*device, error) {
	for began := time.Now(); ; time.Sleep(deviceWaitInterval) {
		d, err := tryOpen(path)
		switch gone := isAbsent(err); {
		case err == nil:
			return d, nil
		case gone && time.Since(began) < wait:
		case gone:
			return nil, fleet.Errorf(fleet.CodeUnavailable, "open %s: %w", path, fmt.Errorf("%w (%w)", machinekey.ErrAbsent, err)).
				WithHint("is a TPM 2.0 there, and turned on in the firmware? --tpm-device names another one, --seal another place for the key")
		case errors.Is(err, fs.ErrPermission):
			return nil, fleet.Errorf(fleet.CodeForbidden, "open %s: %w", path, err).
				WithHint("let the agent's user read and write it: usually the group is tss")
		default:
			return nil, fmt.Errorf("open %s: %w", path, err)
		}
	}
}

// isAbsent reports whether a device, or the server of a socket, is not there.
func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ECONNREFUSED)
}

func tryOpen(path string) (*device, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode()&fs.ModeSocket != 0 {
		conn, err := net.DialTimeout("unix", path, commandTimeout)
		if err != nil {
			return nil, err
		}
		return &device{conn}, nil
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return &device{f}, nil
}

// Close closes the connection.
func (d *device) Close() error { return d.conn.Close() }

// Send sends a command and returns its response.
func (d *device) Send(command []byte) ([]byte, error) {
	if err := d.conn.SetDeadline(time.Now().Add(commandTimeout)); err != nil && !errors.Is(err, os.ErrNoDeadline) {
		return nil, fmt.Errorf("send a command: %w", err)
	}
	if _, err := d.conn.Write(command); err != nil {
		return nil, fmt.Errorf("send a command: %w", err)
	}
	response := make([]byte, maxResponse)
	n, err := io.ReadAtLeast(d.conn, response, headerBytes)
	if err != nil {
		return nil, fmt.Errorf("read a response: %w", err)
	}
	size := binary.BigEndian.Uint32(response[2:])
	if size < headerBytes || size > maxResponse || int(size) < n {
		return nil, fmt.Errorf("read a response: its length is %d", size)
	}
	if _, err := io.ReadFull(d.conn, response[n:size]); err != nil {
		return nil, fmt.Errorf("read a response: %w", err)
	}
	return response[:size], nil
}
