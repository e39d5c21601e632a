package fleet

// How an artifact's source is taken.
const (
	ArtifactAny  = "any" // unpacked where it is an archive
	ArtifactFile = "file"
	ArtifactDir  = "dir"
)

// TaskArtifact is something that is fetched into a task's folder before it starts.
type TaskArtifact struct {
	GetterSource   string
	GetterOptions  map[string]string
	GetterHeaders  map[string]string
	GetterMode     string // default ArtifactAny
	GetterInsecure bool
	RelativeDest   string // default local/, and local/NAME for a file
	Chown          bool
}
