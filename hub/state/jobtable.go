package state

import (
	"encoding/binary"

	"skerry/fleet"
)

// jobRow is a job with its kept versions, newest first. job has the same specification as the newest
// version, but only job has the current Status and Stop.
type jobRow struct {
	job       *fleet.Job
	versions  []*fleet.Job
	queued    map[string]int                  // unplaced allocations by group, as the newest evaluation says
	evaluated bool                            // the job has had an evaluation or an allocation
	launched  int64                           // newest launch time of a periodic job (UnixNano); 0: never
	scaled    map[string][]fleet.ScalingEvent // by group, newest first
	tags      []taggedVersion
	sources   []versionSource
	stable    []uint64 // kept versions that are stable, newest first
}

type (
	savedJob struct {
		Job       fleet.Job
		Versions  []savedBodyRef // newest first
		Queued    map[string]int
		Evaluated bool
		Launched  int64
		Stable    []uint64
		Scaled    map[string][]fleet.ScalingEvent
		Tags      []taggedVersion
	}
	savedSource struct {
		Namespace string
		Job       fleet.JobID
		Version   uint64
		Source    *fleet.Submission
	}
)

const indexPeriodic = "periodic"

var jobTable = table[jobRow]{
	name: "jobs", key: jobRowKey, announced: true,
	indexes:  []tableIndex[jobRow]{{indexPeriodic, jobRowKey, func(r *jobRow) bool { return r.job.IsPeriodic() }}},
	records:  []record[jobRow]{savedRecord(8, toSavedJob, loadJob), partsRecord(70, toSavedSources, loadJobSource)},
	describe: describeJob,
}

func jobRowKey(r *jobRow) []byte { return jobKeyOf(r.job.Namespace, r.job.ID) }

// toSavedJob converts a job to its snapshot record, without its submissions.
func toSavedJob(r *jobRow) *savedJob {
	s := &savedJob{Job: *r.job, Queued: r.queued, Evaluated: r.evaluated, Launched: r.launched, Stable: r.stable, Scaled: r.scaled, Tags: r.tags}
	for _, j := range r.versions {
		s.Versions = append(s.Versions, savedBodyRef{j.SpecHash, j.Version, j.CreateIndex})
	}
	return s
}

// loadJob converts a snapshot record to a job. It fails if the record of one of its versions was not read
// before.
func loadJob(in *loader, s *savedJob) (*jobRow, error) {
	row := &jobRow{job: &s.Job, queued: s.Queued, evaluated: s.Evaluated, launched: s.Launched, stable: s.Stable, scaled: s.Scaled, tags: s.Tags}
	for _, ref := range s.Versions {
		job, err := in.findLoadedBody(s.Job.Namespace, s.Job.ID, ref)
		if err != nil {
			return nil, err
		}
		row.versions = append(row.versions, job)
	}
	return row, nil
}

// toSavedSources converts the submissions of a job to snapshot records.
func toSavedSources(r *jobRow) []savedSource {
	var saved []savedSource
	for _, s := range r.sources {
		saved = append(saved, savedSource{r.job.Namespace, r.job.ID, s.Version, s.Source})
	}
	return saved
}

// loadJobSource adds a submission from a snapshot to its job.
func loadJobSource(in *loader, tb *table[jobRow], s *savedSource) error {
	row := tb.currentRow(in.t, jobKeyOf(s.Namespace, s.Job))
	if row == nil || s.Source == nil {
		return fleet.Errorf(fleet.CodeInvalid, "job %s of a submitted job file is missing", s.Job)
	}
	row.sources = append(row.sources, versionSource{s.Version, s.Source})
	return nil
}

// describeJob writes a job and its versions for View.Describe.
func describeJob(d *describer, table string, r *jobRow) {
	d.writeTableLine(table, r.job, r.queued, r.evaluated, r.launched, r.stable)
	for _, j := range r.versions {
		d.writeTableLine(table+" version", j.ID, j.Version, j.SpecHash, j.CreateIndex)
	}
}

// bodyRow is a job version. It is kept while refs, the number of versions and allocations that refer to
// it, is positive.
type bodyRow struct {
	job  *fleet.Job
	refs int
}

// savedBodyRef identifies a job body within the records of a snapshot.
type savedBodyRef struct {
	SpecHash    string
	Version     uint64
	CreateIndex fleet.Index
}

var bodyTable = table[bodyRow]{
	name:     "bodies",
	key:      func(r *bodyRow) []byte { return bodyKey(r.job) },
	records:  []record[bodyRow]{savedRecord(7, func(r *bodyRow) *fleet.Job { return r.job }, loadBody)},
	describe: func(d *describer, table string, r *bodyRow) { d.writeTableLine(table, r.refs, r.job) },
}

// loadBody remembers a body for the records that refer to it. It returns no row: deriveRows makes it.
func loadBody(in *loader, j *fleet.Job) (*bodyRow, error) {
	in.bodies[string(bodyKey(j))] = j
	return nil, nil
}

// bodyKey is the key of a body: hash, namespace, id, version, and the create index of its job.
func bodyKey(j *fleet.Job) []byte {
	b := key(j.SpecHash, j.Namespace, string(j.ID))
	b = binary.BigEndian.AppendUint64(b, j.Version)
	return binary.BigEndian.AppendUint64(b, uint64(j.CreateIndex))
}
