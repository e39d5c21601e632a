package rawexec

// ParseStat reads a line of /proc/PID/stat.
func ParseStat(b []byte) (parent, session int, start uint64, err error) {
	s, err := parseStat(b)
	return s.parent, s.session, s.start, err
}

// ParseOrder reads a line of the control FIFO and writes it again.
func ParseOrder(line string) (string, error) {
	o, err := parseOrder(line)
	return o.line(), err
}
