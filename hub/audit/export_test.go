package audit

// ReadEdgesPosition exports readEdgesPosition.
func (l *Log) ReadEdgesPosition() (uint64, error) { return l.readEdgesPosition() }

// LocalSyslog is the machine's own server, at another path.
func LocalSyslog(socket string) *Syslog { return &Syslog{network: "unixgram", address: socket} }
