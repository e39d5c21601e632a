package tpm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"skerry/edge/machinekey"
	"skerry/fleet"
	"skerry/internal/codec"
)

// mustServe answers each connection at a unix socket by a function.
func mustServe(tb testing.TB, answer func(net.Conn)) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "tpm")
	l, err := net.Listen("unix", path)
	if err != nil {
		tb.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			answer(c)
			_ = c.Close()
		}
	}()
	tb.Cleanup(func() { _ = l.Close(); <-done })
	return path
}

// response returns a response without parameters.
func response(size uint32, code tpm2.TPMRC) []byte {
	b := binary.BigEndian.AppendUint16(nil, 0x8001)
	b = binary.BigEndian.AppendUint32(b, size)
	return binary.BigEndian.AppendUint32(b, uint32(code))
}

// TestBrokenTPM: whatever a device answers or does not, Seal and Unseal return an error that names it, and never ErrForeign or
// ErrAbsent: the key may be had another time.
func TestBrokenTPM(t *testing.T) {
	sealed, err := codec.Marshal(sealedKey{sealedVersion, []byte("parent"), []byte("public"), []byte("private")})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		answer []byte
		says   string
	}{
		"it closes":       {nil, "EOF"},
		"a cut header":    {response(10, 0)[:7], "EOF"},
		"a cut response":  {response(20, 0), "EOF"},
		"a length of 9":   {response(9, 0), "length is 9"},
		"a huge length":   {response(1<<31, 0), "length is 2147483648"},
		"more than asked": {append(response(10, tpm2.TPMRCFailure), 1), "length is 10"},
		"a failed TPM":    {response(10, tpm2.TPMRCFailure), "TPM_RC_FAILURE"},
		"nothing of use":  {response(10, 0), ""},
	} {
		path := mustServe(t, func(c net.Conn) {
			if _, err := c.Read(make([]byte, maxResponse)); err == nil {
				_, _ = c.Write(tc.answer)
			}
		})
		k := New(path)
		_, sealErr := k.Seal(make([]byte, 32))
		_, unsealErr := k.Unseal(sealed)
		for _, err := range []error{sealErr, unsealErr} {
			if fleet.CodeOf(err) != fleet.CodeUnavailable || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), tc.says) ||
				errors.Is(err, machinekey.ErrForeign) || errors.Is(err, machinekey.ErrAbsent) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestNoTPM: a device that is not there, or that the agent may not open, is told apart.
func TestNoTPM(t *testing.T) {
	_, err := openDevice(filepath.Join(t.TempDir(), "none"), 0)
	if !errors.Is(err, machinekey.ErrAbsent) || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "--seal") {
		t.Errorf("no device: %v", err)
	}
	if _, err := openDevice(t.TempDir(), 0); err == nil || errors.Is(err, machinekey.ErrAbsent) {
		t.Errorf("a folder: %v", err)
	}
	if _, err := New(filepath.Join(t.TempDir(), "none")).Seal(nil); !errors.Is(err, machinekey.ErrAbsent) {
		t.Errorf("seal: %v", err)
	}
}

// TestLateTPM: a device that appears after the start of the agent is waited for.
func TestLateTPM(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tpm")
	opened := make(chan error, 1)
	go func() {
		d, err := openDevice(path, time.Minute)
		if err == nil {
			err = d.Close()
		}
		opened <- err
	}()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

// script answers commands with parts of one text.
type script struct{ rest []byte }

// Send implements transport.TPM.
func (s *script) Send([]byte) ([]byte, error) {
	if len(s.rest) < 2 {
		return nil, io.ErrUnexpectedEOF
	}
	n := min(int(binary.BigEndian.Uint16(s.rest)), len(s.rest)-2)
	answer := s.rest[2 : 2+n]
	s.rest = s.rest[2+n:]
	return answer, nil
}

// FuzzResponses: no device gets the agent down.
func FuzzResponses(f *testing.F) {
	sealed, err := codec.Marshal(sealedKey{sealedVersion, []byte("parent"), []byte("public"), []byte("private")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append([]byte{0, 10}, response(10, 0)...))
	f.Fuzz(func(t *testing.T, text []byte) {
		if b, err := seal(&script{text}, make([]byte, 32)); (b == nil) == (err == nil) {
			t.Error(b, err)
		}
		if b, err := unseal(&script{text}, sealed); err == nil && b == nil {
			t.Error("no key and no error")
		}
	})
}

func FuzzDecodeSealed(f *testing.F) {
	b, err := codec.Marshal(sealedKey{sealedVersion, []byte("parent"), []byte("public"), []byte("private")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := decodeSealed(text)
		if err != nil {
			return
		}
		again, err := codec.Marshal(s)
		if err != nil || len(again) > maxSealedBytes {
			t.Fatal(err)
		}
		if back, err := decodeSealed(again); err != nil || !bytes.Equal(back.Private, s.Private) {
			t.Error(back, err)
		}
	})
}
