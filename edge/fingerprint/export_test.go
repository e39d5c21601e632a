package fingerprint

import "net"

// VolumeOf returns the device that is mounted where path lies.
func VolumeOf(lines []string, path string) string { return volumeOf(lines, path) }

// FirstGlobal is the first address of a list that is routed.
func FirstGlobal(addrs []net.Addr) string { return firstGlobal(addrs) }

// ReadLoad reads the counters of the machine's load.
var ReadLoad = readLoad

// MeasureDevices returns the usage of the devices.
var MeasureDevices = (*Fingerprinter).measureDevices
