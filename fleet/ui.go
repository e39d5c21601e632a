package fleet

// JobUI is what a web page shows of a job.
type JobUI struct {
	Description string
	Links       []JobUILink
}

// JobUILink is one link of it.
type JobUILink struct {
	Label string
	URL   string
}

// JobVersionTag is a name that an operator gave to a version of a job.
type JobVersionTag struct {
	Name        string
	Description string
	TaggedTime  int64 // UnixNano, the hub's clock
}
