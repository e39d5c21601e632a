package edged

import (
	"os"

	"github.com/spf13/pflag"

	"skerry/edge/machinekey"
	"skerry/edge/machinekey/tpm"
	"skerry/fleet"
)

// sealAuto lets the edge find the place of the machine's key.
const sealAuto = "auto"

// addKeyFlags adds the flags of the key that encrypts secrets on this machine's disk.
func (f *Flags) addKeyFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.Seal, "seal", sealAuto, "how to keep the key that encrypts secrets on the disk: tpm (sealed by the TPM 2.0), systemd (by the credential "+machinekey.CredentialName+"), file (in clear, mode 0600), or auto (as it is; in a new data directory the first of these that works)")
	flags.StringVar(&f.TPMDevice, "tpm-device", tpm.DefaultDevice, "device of the TPM 2.0")
}

// machineKey returns where the machine's key has to be ("": where it is), and what may seal it.
func (f *Flags) machineKey() (machinekey.Place, []machinekey.Keeper, error) {
	keepers := []machinekey.Keeper{tpm.New(f.TPMDevice), machinekey.NewCredential(os.Getenv("CREDENTIALS_DIRECTORY"))}
	switch place := machinekey.Place(f.Seal); place {
	case sealAuto, "": // "": flags that no command line has filled
		return "", keepers, nil
	case machinekey.PlaceTPM, machinekey.PlaceCredential, machinekey.PlaceFile:
		return place, keepers, nil
	}
	return "", nil, fleet.Errorf(fleet.CodeInvalid, "--seal %q: not a way to keep the machine's key", f.Seal).
		WithHint("the ways are auto, tpm, systemd and file")
}
