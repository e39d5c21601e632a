package docker

import (
	"slices"

	"skerry/drivers/record"
)

// Keys returns the keys of a config block of docker.
func Keys() []string { return slices.Clone(sortedKeys((&options{}).configKeys(&reader{}))) }

// ParseLogLine parses a line of a daemon's log.
func ParseLogLine(podman bool, line []byte) (int, []byte, bool) {
	format := jsonLog
	if podman {
		format = k8sLog
	}
	return parseLogLine(format, line)
}

// DecodeRecords decodes bytes as each of the records.
func DecodeRecords(b []byte) {
	_ = record.Decode(b, &exitRecord{})
	_ = record.Decode(b, &logPosition{})
}
