package console

// KeyPlace says how an edge keeps the key that encrypts secrets on its disk, by the name of the place; "": it is of an
// agent that does not tell.
func KeyPlace(place string) string {
	return map[string]string{
		"tpm": "sealed by the TPM", "systemd": "sealed by a credential of systemd", "file": "in a file of the data directory",
		"memory": "in memory alone: the secrets on the disk cannot be decrypted until a hub sends them again",
	}[place]
}
