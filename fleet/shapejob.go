package fleet

import "encoding/json"

type (
	plainJob Job
	jobShape struct {
		*plainJob
		Update *Update
	}
)

// MarshalJSON adds the Update of the job itself, where Nomad's clients look for one: it is
// that of the first group that has one. Reading the job back changes nothing, since what a
// group says of itself wins.
func (j Job) MarshalJSON() ([]byte, error) {
	shape := jobShape{plainJob: (*plainJob)(&j)}
	for _, g := range j.TaskGroups {
		if g.Update != nil {
			shape.Update = g.Update
			break
		}
	}
	return json.Marshal(shape)
}

// UnmarshalJSON reads what MarshalJSON writes. The Update of the job itself is that of its groups.
func (j *Job) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &jobShape{plainJob: (*plainJob)(j)})
}
