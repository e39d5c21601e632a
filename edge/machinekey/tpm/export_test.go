package tpm

import "github.com/google/go-tpm/tpm2/transport"

// These are for tests of the real thing.
var (
	SealBy   = func(t transport.TPM, plain []byte) ([]byte, error) { return seal(t, plain) }
	UnsealBy = func(t transport.TPM, sealed []byte) ([]byte, error) { return unseal(t, sealed) }
)

// OpenDevice opens a device.
func OpenDevice(path string) (transport.TPMCloser, error) { return openDevice(path, 0) }
