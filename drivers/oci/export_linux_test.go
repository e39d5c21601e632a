package oci

import "skerry/drivers"

// ResolvConf returns the content of resolv.conf of a task.
func ResolvConf(n drivers.Network) string { return resolvConf(n) }

// HostsFile returns the content of hosts of a task.
func HostsFile(n drivers.Network) string { return hostsFile(n) }
