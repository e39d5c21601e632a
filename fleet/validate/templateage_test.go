package validate_test

import (
	"strings"
	"testing"

	"skerry/fleet/validate"
)

func TestMaxAgeOfTemplates(t *testing.T) {
	for template, want := range map[string]string{
		`"MaxAge": 60000000000`:                             "",
		`"MaxAge": 60000000000, "MaxAgeSignal": "SIGUSR1"`:  "",
		`"MaxAge": 59999999999`:                             "is less than 1m0s",
		`"MaxAge": -1`:                                      "is less than 1m0s",
		`"MaxAgeSignal": "SIGUSR1"`:                         "max_age_signal needs a max_age",
		`"MaxAge": 60000000000, "MaxAgeSignal": "rm -rf x"`: "not the name of a signal",
	} {
		job, problems := validate.DecodeJob([]byte(identityJob(`"Templates": [{"EmbeddedTmpl": "x", "DestPath": "local/x", ` + template + `}]`)))
		if len(problems) == 0 {
			validate.FillDefaults(job)
			problems = validate.Job(job)
		}
		if text := strings.Join(problems.Lines(), "\n"); want == "" && text != "" || !strings.Contains(text, want) {
			t.Errorf("%s: %q, want %q", template, text, want)
		}
	}
}
