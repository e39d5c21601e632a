package fleet

// Formats of a job file.
const (
	FormatHCL1 = "hcl1"
	FormatHCL2 = "hcl2"
	FormatJSON = "json"
)

// MaxSubmission bounds what is kept of a job file, in bytes; what is larger is not
// kept, and the job is registered all the same.
const MaxSubmission = MaxJobSize

// Submission is the file that a version of a job was made of, for people to read.
type Submission struct {
	Source        string
	Format        string
	VariableFlags map[string]string // as they were given one by one
	Variables     string            // what the files with variables say
}
