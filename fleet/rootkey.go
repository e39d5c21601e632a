package fleet

// RootKey describes a data key of the cluster's keyring, in Nomad's shape. Variables are encrypted with data keys.
type RootKey struct {
	KeyID       string
	Algorithm   string
	CreateTime  int64 // UnixNano
	CreateIndex Index
	ModifyIndex Index
	State       string
	PublishTime int64
}

// AlgorithmAES256GCM is the only algorithm of root keys.
const AlgorithmAES256GCM = "aes256-gcm"

// States of a root key.
const (
	RootKeyActive     = "active"     // encrypts
	RootKeyInactive   = "inactive"   // decrypts what it encrypted while it was active
	RootKeyRekeying   = "rekeying"   // what it encrypted is being encrypted with the active key
	RootKeyDeprecated = "deprecated" // nothing is encrypted with it any more
)
