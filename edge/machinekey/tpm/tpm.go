// Package tpm seals the machine's key by a TPM 2.0: only the same TPM, which was not cleared meanwhile, gives it back.
//
// Keeper implements machinekey.Keeper. The key is sealed below the storage root key of the owner hierarchy, without a policy
// on PCRs: an update of the firmware changes these, and would lock the edge out. So the seal protects from those who have the
// disk without the machine, not from those who boot the machine with another system. The package persists nothing in the TPM
// and starts no goroutine.
package tpm

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"skerry/edge/machinekey"
	"skerry/fleet"
	"skerry/internal/codec"
)

// persistentRootKey is where the TCG's provisioning guidance keeps the storage root key. It is used where the owner of the TPM
// set a password, which deriving the key needs.
const persistentRootKey = tpm2.TPMHandle(0x81000001)

// Keeper seals by the TPM of a device. It may be used by any goroutine.
type Keeper struct{ device string }

// New returns the Keeper of a TPM 2.0: a device of the kernel's resource manager, or a unix socket, such as swtpm has one.
func New(device string) Keeper { return Keeper{device} }

// Place returns machinekey.PlaceTPM.
func (k Keeper) Place() machinekey.Place { return machinekey.PlaceTPM }

// Seal encrypts the machine's key so that only this TPM opens it.
func (k Keeper) Seal(plain []byte) ([]byte, error) {
	const what = "seal the machine's key by the TPM"
	d, err := openDevice(k.device, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	sealed, err := seal(d, plain)
	if err = errors.Join(err, d.Close()); err != nil {
		return nil, k.explainFailure(what, err)
	}
	return sealed, nil
}

// Unseal reverses Seal. ErrForeign: the TPM was cleared, or is that of another machine.
func (k Keeper) Unseal(sealed []byte) ([]byte, error) {
	const what = "unseal the machine's key by the TPM"
	d, err := openDevice(k.device, deviceWait)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	plain, err := unseal(d, sealed)
	if err = errors.Join(err, d.Close()); err != nil {
		return nil, k.explainFailure(what, err)
	}
	return plain, nil
}

// explainFailure says what to do about an error of the TPM.
func (k Keeper) explainFailure(what string, err error) error {
	switch {
	case errors.Is(err, machinekey.ErrForeign):
		return fleet.Errorf(fleet.CodeInvalid, "%s %s: it is another TPM, or was cleared: %w", what, k.device, err).
			WithHint("put the disk back into its machine; otherwise the key is replaced when a hub answers, which sends the secrets again")
	case isRefusedOwner(err):
		return fleet.Errorf(fleet.CodeForbidden, "%s %s: its owner hierarchy has a password: %w", what, k.device, err).
			WithHint("make its storage root key persistent at %#x: tpm2_evictcontrol", uint32(persistentRootKey))
	}
	return fleet.Errorf(fleet.CodeUnavailable, "%s %s: %w", what, k.device, err).
		WithHint("restart the agent to try again, or keep the key elsewhere with --seal")
}

// rootKey is a loaded storage root key.
type rootKey struct {
	handle    tpm2.TPMHandle
	name      tpm2.TPM2BName
	public    tpm2.TPMTPublic
	temporary bool // it has to be flushed
}

// flushKey unloads a temporary key. An error changes nothing: the kernel flushes what is loaded when the device is closed.
func (r rootKey) flushKey(t transport.TPM) {
	if r.temporary {
		_, _ = tpm2.FlushContext{FlushHandle: r.handle}.Execute(t)
	}
}

// encryptedSession returns a session by which r, or a key below it, is used, and that encrypts what goes over the bus.
func (r rootKey) encryptedSession(direction tpm2.AuthOption) tpm2.Session {
	return tpm2.HMAC(tpm2.TPMAlgSHA256, 16, direction, tpm2.Salted(r.handle, r.public))
}

// deriveRootKey makes the storage root key from the owner's seed: it is the same until the TPM is cleared.
func deriveRootKey(t transport.TPM) (rootKey, error) {
	rsp, err := tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHOwner, InPublic: tpm2.New2B(tpm2.ECCSRKTemplate)}.Execute(t)
	if err != nil {
		return rootKey{}, fmt.Errorf("derive the storage root key: %w", err)
	}
	r := rootKey{handle: rsp.ObjectHandle, name: rsp.Name, temporary: true}
	public, err := rsp.OutPublic.Contents()
	if err != nil {
		r.flushKey(t)
		return rootKey{}, fmt.Errorf("read the storage root key: %w", err)
	}
	r.public = *public
	return r, nil
}

// readRootKey returns the persistent storage root key.
func readRootKey(t transport.TPM) (rootKey, error) {
	rsp, err := tpm2.ReadPublic{ObjectHandle: persistentRootKey}.Execute(t)
	if err != nil {
		return rootKey{}, fmt.Errorf("read the persistent storage root key: %w", err)
	}
	public, err := rsp.OutPublic.Contents()
	if err != nil {
		return rootKey{}, fmt.Errorf("read the persistent storage root key: %w", err)
	}
	return rootKey{handle: persistentRootKey, name: rsp.Name, public: *public}, nil
}

// findRootKey returns the root key of a name, or any for nil. ErrForeign: this TPM does not have it.
func findRootKey(t transport.TPM, name []byte) (rootKey, error) {
	derived, err := deriveRootKey(t)
	if err == nil {
		if name == nil || bytes.Equal(derived.name.Buffer, name) {
			return derived, nil
		}
		derived.flushKey(t)
	} else if !isRefusedOwner(err) {
		return rootKey{}, err
	}
	kept, keptErr := readRootKey(t)
	switch absent := errors.Is(keptErr, tpm2.TPMRCHandle); {
	case keptErr == nil && (name == nil || bytes.Equal(kept.name.Buffer, name)):
		return kept, nil
	case keptErr != nil && !absent:
		return rootKey{}, keptErr
	case err != nil && absent:
		return rootKey{}, err
	}
	return rootKey{}, machinekey.ErrForeign
}

// isRefusedOwner reports whether the TPM wants the password of the owner hierarchy, which is not known here.
func isRefusedOwner(err error) bool {
	return errors.Is(err, tpm2.TPMRCBadAuth) || errors.Is(err, tpm2.TPMRCAuthFail)
}

// sealedKey is what Seal returns, encoded. Its format never changes.
type sealedKey struct {
	Version int    `cbor:"1,keyasint"`
	Parent  []byte `cbor:"2,keyasint"` // name of the storage root key
	Public  []byte `cbor:"3,keyasint"` // TPMT_PUBLIC
	Private []byte `cbor:"4,keyasint"` // what a TPM2B_PRIVATE has
}

const (
	sealedVersion  = 1
	maxSealedBytes = 4 << 10
)

var decoder = codec.NewDecoder(codec.Limits{Nesting: 4, Elements: 16, Pairs: 16, Items: 16})

func decodeSealed(b []byte) (s sealedKey, err error) {
	if len(b) > maxSealedBytes {
		return s, fmt.Errorf("read the sealed key: %d bytes", len(b))
	}
	if err := decoder.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("read the sealed key: %w", err)
	}
	if s.Version != sealedVersion || len(s.Parent) == 0 || len(s.Public) == 0 || len(s.Private) == 0 {
		return s, fmt.Errorf("read the sealed key: version %d, or parts of it are missing", s.Version)
	}
	return s, nil
}

// seal has the TPM encrypt plain below its storage root key.
func seal(t transport.TPM, plain []byte) ([]byte, error) {
	root, err := findRootKey(t, nil)
	if err != nil {
		return nil, err
	}
	defer root.flushKey(t)
	rsp, err := tpm2.Create{
		ParentHandle: tpm2.AuthHandle{Handle: root.handle, Name: root.name, Auth: root.encryptedSession(tpm2.AESEncryption(128, tpm2.EncryptIn))},
		InSensitive: tpm2.TPM2BSensitiveCreate{Sensitive: &tpm2.TPMSSensitiveCreate{
			Data: tpm2.NewTPMUSensitiveCreate(&tpm2.TPM2BSensitiveData{Buffer: plain}),
		}},
		InPublic: tpm2.New2B(tpm2.TPMTPublic{
			Type: tpm2.TPMAlgKeyedHash, NameAlg: tpm2.TPMAlgSHA256,
			ObjectAttributes: tpm2.TPMAObject{FixedTPM: true, FixedParent: true, UserWithAuth: true, NoDA: true},
		}),
	}.Execute(t)
	if err != nil {
		return nil, fmt.Errorf("make the sealed key: %w", err)
	}
	return codec.Marshal(sealedKey{sealedVersion, root.name.Buffer, rsp.OutPublic.Bytes(), rsp.OutPrivate.Buffer})
}

// unseal has the TPM decrypt what seal returned.
func unseal(t transport.TPM, sealed []byte) ([]byte, error) {
	s, err := decodeSealed(sealed)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, machinekey.ErrForeign)
	}
	root, err := findRootKey(t, s.Parent)
	if err != nil {
		return nil, err
	}
	defer root.flushKey(t)
	loaded, err := tpm2.Load{
		ParentHandle: tpm2.AuthHandle{Handle: root.handle, Name: root.name, Auth: tpm2.PasswordAuth(nil)},
		InPrivate:    tpm2.TPM2BPrivate{Buffer: s.Private},
		InPublic:     tpm2.BytesAs2B[tpm2.TPMTPublic](s.Public),
	}.Execute(t)
	if errors.Is(err, tpm2.TPMRCIntegrity) {
		return nil, fmt.Errorf("load the sealed key: %w: %w", err, machinekey.ErrForeign)
	}
	if err != nil {
		return nil, fmt.Errorf("load the sealed key: %w", err)
	}
	defer rootKey{handle: loaded.ObjectHandle, temporary: true}.flushKey(t)
	rsp, err := tpm2.Unseal{ItemHandle: tpm2.AuthHandle{
		Handle: loaded.ObjectHandle, Name: loaded.Name, Auth: root.encryptedSession(tpm2.AESEncryption(128, tpm2.EncryptOut)),
	}}.Execute(t)
	if err != nil {
		return nil, fmt.Errorf("unseal the loaded key: %w", err)
	}
	return rsp.OutData.Buffer, nil
}
