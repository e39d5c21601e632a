package nvidia

// DecodedTexts returns the texts of the devices of a report that can be decoded.
func DecodedTexts(b []byte) []string {
	r, err := decodeReport(b)
	if err != nil {
		return nil
	}
	var texts []string
	for i := range r.GPUs {
		g := &r.GPUs[i]
		texts = append(texts, g.UUID, g.Name, g.healthProblem())
		for _, v := range g.attributeMap(r.DriverVersion) {
			texts = append(texts, v)
		}
		for _, m := range g.currentMeasurements() {
			texts = append(texts, m.Unit)
		}
	}
	return texts
}

// ListedIDs returns the UUIDs of MIG instances of a list.
func ListedIDs(text string) []string {
	var ids []string
	for _, n := range parseList(text) {
		ids = append(ids, n.id, n.gpu, n.profile)
	}
	return ids
}
