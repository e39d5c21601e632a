package fleet

// What a parameterized job says of payloads.
const (
	PayloadOptional  = "optional"
	PayloadRequired  = "required"
	PayloadForbidden = "forbidden"
)

// MaxPayload bounds what a dispatched job may be given, in bytes.
const MaxPayload = 16 << 10

// ParameterizedJob makes a job a template that is dispatched with a payload and meta.
type ParameterizedJob struct {
	Payload      string // default PayloadOptional
	MetaRequired []string
	MetaOptional []string
}

// DispatchPayload names the file in a task's local folder that the payload of a
// dispatch is written to.
type DispatchPayload struct {
	File string
}

// IsParameterized reports whether the job is a template to be dispatched; a job that
// was dispatched is none any more.
func (j *Job) IsParameterized() bool { return j.ParameterizedJob != nil && !j.Dispatched }
