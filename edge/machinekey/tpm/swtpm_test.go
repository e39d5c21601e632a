package tpm_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"skerry/edge/machinekey"
	"skerry/edge/machinekey/tpm"
	"skerry/fleet"
	"skerry/internal/datadir"
)

// software is a TPM 2.0 in software, with its state in a folder.
type software struct {
	state, socket string
	cmd           *exec.Cmd
}

// mustMakeTPM makes and starts another TPM.
func mustMakeTPM(tb testing.TB) *software {
	tb.Helper()
	if _, err := exec.LookPath("swtpm"); err != nil || testing.Short() {
		tb.Skip("needs swtpm, and no -short")
	}
	dir, err := os.MkdirTemp("", "tpm") // the path of a socket has few bytes
	if err != nil {
		tb.Fatal(err)
	}
	s := &software{state: tb.TempDir(), socket: filepath.Join(dir, "s")}
	tb.Cleanup(func() { s.mustStop(tb); _ = os.RemoveAll(dir) })
	s.mustStart(tb)
	return s
}

func (s *software) mustStart(tb testing.TB) {
	tb.Helper()
	s.cmd = exec.Command("swtpm", "socket", "--tpm2", "--tpmstate", "dir="+s.state, "--ctrl", "type=unixio,path="+s.socket+".ctrl",
		"--server", "type=unixio,path="+s.socket, "--flags", "not-need-init,startup-clear")
	if err := s.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	for began := time.Now(); ; {
		c, err := net.Dial("unix", s.socket)
		if err == nil {
			_ = c.Close()
			return
		}
		if time.Since(began) > 20*time.Second {
			tb.Fatalf("swtpm does not listen: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// mustStop turns the machine off.
func (s *software) mustStop(tb testing.TB) {
	tb.Helper()
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
	for _, path := range []string{s.socket, s.socket + ".ctrl"} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			tb.Fatal(err)
		}
	}
}

// mustDo sends commands to the TPM.
func (s *software) mustDo(tb testing.TB, do func(t transport.TPM) error) {
	tb.Helper()
	d, err := tpm.OpenDevice(s.socket)
	if err != nil {
		tb.Fatal(err)
	}
	if err := errors.Join(do(d), d.Close()); err != nil {
		tb.Fatal(err)
	}
}

func clearTPM(t transport.TPM) error {
	_, err := tpm2.Clear{AuthHandle: tpm2.TPMRHLockout}.Execute(t)
	return err
}

func setOwnerPassword(t transport.TPM) error {
	_, err := tpm2.HierarchyChangeAuth{AuthHandle: tpm2.TPMRHOwner, NewAuth: tpm2.TPM2BAuth{Buffer: []byte("owner")}}.Execute(t)
	return err
}

// keepRootKey makes the storage root key persistent, as an owner who has the password can.
func keepRootKey(t transport.TPM) error {
	owner := tpm2.AuthHandle{Handle: tpm2.TPMRHOwner, Auth: tpm2.PasswordAuth([]byte("owner"))}
	rsp, err := tpm2.CreatePrimary{PrimaryHandle: owner, InPublic: tpm2.New2B(tpm2.RSASRKTemplate)}.Execute(t)
	if err != nil {
		return err
	}
	_, err = tpm2.EvictControl{Auth: owner, ObjectHandle: &tpm2.NamedHandle{Handle: rsp.ObjectHandle, Name: rsp.Name}, PersistentHandle: 0x81000001}.Execute(t)
	_, flushErr := tpm2.FlushContext{FlushHandle: rsp.ObjectHandle}.Execute(t)
	return errors.Join(err, flushErr)
}

// loaded counts the keys and sessions that are loaded in a TPM.
func loaded(t transport.TPM) (n int, err error) {
	for _, first := range []uint32{0x80000000, 0x02000000, 0x03000000} {
		rsp, err := tpm2.GetCapability{Capability: tpm2.TPMCapHandles, Property: first, PropertyCount: 100}.Execute(t)
		if err != nil {
			return 0, err
		}
		handles, err := rsp.CapabilityData.Data.Handles()
		if err != nil {
			return 0, err
		}
		n += len(handles.Handle)
	}
	return n, nil
}

// TestRealTPM: a key is unsealed by the TPM that sealed it, also after a reboot, and by no other one, nor after it was cleared.
func TestRealTPM(t *testing.T) {
	mine, other := mustMakeTPM(t), mustMakeTPM(t)
	key := bytes.Repeat([]byte{7}, 32)
	k := tpm.New(mine.socket)
	sealed, err := k.Seal(key)
	if err != nil || bytes.Contains(sealed, key) {
		t.Fatalf("%x, %v", sealed, err)
	}
	mine.mustStop(t)
	mine.mustStart(t)
	if plain, err := k.Unseal(sealed); err != nil || !bytes.Equal(plain, key) {
		t.Fatalf("after a reboot: %x, %v", plain, err)
	}
	mine.mustDo(t, func(d transport.TPM) error {
		if n, err := loaded(d); err != nil || n != 0 {
			t.Errorf("%d keys and sessions are still loaded, %v", n, err)
		}
		return nil
	})
	changed := bytes.Clone(sealed)
	changed[len(changed)-1] ^= 1
	for name, wrong := range map[string]struct {
		keeper tpm.Keeper
		sealed []byte
	}{
		"another machine": {tpm.New(other.socket), sealed},
		"changed bytes":   {k, changed},
		"cut bytes":       {k, sealed[:20]},
	} {
		if plain, err := wrong.keeper.Unseal(wrong.sealed); !errors.Is(err, machinekey.ErrForeign) || plain != nil || !strings.Contains(err.Error(), "cleared") {
			t.Errorf("%s: %x, %v", name, plain, err)
		}
	}
	mine.mustDo(t, clearTPM)
	if _, err := k.Unseal(sealed); !errors.Is(err, machinekey.ErrForeign) {
		t.Errorf("a cleared TPM: %v", err)
	}
	if sealed, err = k.Seal(key); err != nil {
		t.Fatal(err)
	}
	if plain, err := k.Unseal(sealed); err != nil || !bytes.Equal(plain, key) {
		t.Errorf("sealed after it was cleared: %x, %v", plain, err)
	}
}

// TestOwnerPassword: where the owner hierarchy has a password, the persistent storage root key seals, and without one the
// error says what to do.
func TestOwnerPassword(t *testing.T) {
	s := mustMakeTPM(t)
	k := tpm.New(s.socket)
	s.mustDo(t, setOwnerPassword)
	if _, err := k.Seal(make([]byte, 32)); fleet.CodeOf(err) != fleet.CodeForbidden || !strings.Contains(err.Error(), "tpm2_evictcontrol") {
		t.Errorf("no persistent key: %v", err)
	}
	s.mustDo(t, keepRootKey)
	sealed, err := k.Seal(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := k.Unseal(sealed); err != nil || plain[0] != 7 {
		t.Errorf("%x, %v", plain, err)
	}
	s.mustDo(t, clearTPM)
	if _, err := k.Unseal(sealed); !errors.Is(err, machinekey.ErrForeign) {
		t.Errorf("a cleared TPM: %v", err)
	}
}

// failing fails the command of a number.
type failing struct {
	transport.TPM
	at, n int
}

// Send implements transport.TPM.
func (f *failing) Send(command []byte) ([]byte, error) {
	if f.n++; f.n == f.at {
		return nil, errors.New("the bus is broken")
	}
	return f.TPM.Send(command)
}

// TestEachCommandFails: a failure of any command is an error or changes nothing, and never says that the key is lost.
func TestEachCommandFails(t *testing.T) {
	s := mustMakeTPM(t)
	key := bytes.Repeat([]byte{7}, 32)
	failed := 0
	for at := 1; ; at++ {
		var sealed, plain []byte
		var sealErr, unsealErr error
		commands := 0
		s.mustDo(t, func(d transport.TPM) error {
			f := &failing{TPM: d, at: at}
			if sealed, sealErr = tpm.SealBy(f, key); sealErr == nil {
				plain, unsealErr = tpm.UnsealBy(f, sealed)
			}
			commands = f.n
			return nil
		})
		s.mustStop(t) // a machine without the kernel's resource manager keeps what is loaded
		s.mustStart(t)
		err := errors.Join(sealErr, unsealErr)
		switch {
		case errors.Is(err, machinekey.ErrForeign) || errors.Is(err, machinekey.ErrAbsent):
			t.Errorf("command %d fails: %v", at, err)
		case err == nil && !bytes.Equal(plain, key):
			t.Errorf("command %d fails: %x", at, plain)
		case err != nil:
			failed++
		}
		if commands < at {
			break
		}
	}
	if failed < 5 {
		t.Errorf("only %d failures were noticed", failed)
	}
}

// TestKeyInARealTPM: a data directory's key moves into a TPM and back, outlives a reboot there, and is replaced after the TPM was
// cleared, once a hub has answered.
func TestKeyInARealTPM(t *testing.T) {
	s := mustMakeTPM(t)
	dir := t.TempDir()
	ctx, replaced := context.WithCancel(t.Context())
	defer replaced()
	open := func(wanted machinekey.Place, step func(string) error) (*machinekey.Store, *datadir.Dir) {
		t.Helper()
		d, err := datadir.Open(dir, datadir.Kind{Owner: "an edge", Version: 1})
		if err != nil {
			t.Fatal(err)
		}
		store, err := machinekey.Open(machinekey.Config{Dir: d, Keepers: []machinekey.Keeper{tpm.New(s.socket)}, Wanted: wanted, Step: step, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return store, d
	}
	var sealed []byte
	for i, step := range []struct{ wanted, at machinekey.Place }{
		{"file", "file"}, {"", "file"}, {"tpm", "tpm"}, {"", "tpm"}, {"file", "file"}, {"tpm", "tpm"},
	} {
		store, d := open(step.wanted, nil)
		if got := store.Status(); got != (machinekey.Status{Place: step.at}) {
			t.Fatalf("step %d: %+v", i, got)
		}
		if i == 0 {
			sealed = store.Key().Seal([]byte("secret"), nil)
		}
		if plain, err := store.Key().Open(sealed, nil); err != nil || string(plain) != "secret" {
			t.Fatalf("step %d: %q, %v", i, plain, err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		s.mustStop(t)
		s.mustStart(t)
	}
	s.mustDo(t, clearTPM)
	lost, d := open("", func(label string) error {
		if label == machinekey.StepErase { // the last one
			replaced()
		}
		return nil
	})
	if got := lost.Status(); got.Place != machinekey.PlaceMemory || !strings.Contains(got.Error, "cleared") {
		t.Errorf("after it was cleared: %+v", got)
	}
	lost.NoteAnswer()
	if err := errors.Join(lost.Run(ctx), d.Close()); err != nil {
		t.Fatal(err)
	}
	again, d := open("", nil)
	defer d.Close()
	if plain, err := again.Key().Open(lost.Key().Seal([]byte("new"), nil), nil); err != nil || string(plain) != "new" || again.Status().Place != machinekey.PlaceTPM {
		t.Errorf("after the replacement: %q, %v, %+v", plain, err, again.Status())
	}
}
