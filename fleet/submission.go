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

// Size is what of it counts for MaxSubmission.
func (s *Submission) Size() int {
	n := len(s.Source) + len(s.Variables)
	for k, v := range s.VariableFlags {
		n += len(k) + len(v)
	}
	return n
}

// Check reports what is wrong with it.
func (s *Submission) Check() error {
	switch s.Format {
	case FormatHCL1, FormatHCL2, FormatJSON:
		return nil
	}
	return Errorf(CodeInvalid, "the format %q of the job's source is not known", s.Format).
		WithHint("it is %s or %s", FormatHCL2, FormatJSON)
}
