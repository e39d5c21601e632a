package audit

// ReadEdgesPosition exports readEdgesPosition.
func (l *Log) ReadEdgesPosition() (uint64, error) { return l.readEdgesPosition() }
