package template_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/fleet/template"
)

var services = []template.Service{
	{ID: "b", Name: "web", Address: "10.0.0.2", Port: 80, Tags: template.Tags{"v2"}},
	{ID: "a", Name: "web", Address: "10.0.0.1", Port: 8080, Tags: template.Tags{"v1", "blue"}},
	{ID: "c", Name: "db", Address: "10.0.0.3", Port: 5432},
}

func sources() template.Sources {
	return template.Sources{
		Env: func(name string) (string, bool) {
			v, ok := map[string]string{"NAME": "value", "EMPTY": ""}[name]
			return v, ok
		},
		File: func(path string) (string, bool, error) {
			switch path {
			case "local/conf":
				return `{"a":[1,2],"b":"x"}`, false, nil
			case "secrets/pin":
				return "geheim", true, nil
			}
			return "", false, os.ErrNotExist
		},
		Services: func(string) ([]template.Service, error) { return services, nil },
		Addresses: func() (any, map[string]any, error) {
			return []string{"10.0.0.1", "10.0.0.2"}, map[string]any{"limit": func(n int, list []string) []string { return list[:n] }}, nil
		},
		Now: func() time.Time { return time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC) },
		Variable: func(path string) (map[string]string, bool) {
			items, ok := map[string]map[string]string{"nomad/jobs/shop": {"user": "a", "password": "geheim"}}[path]
			return items, ok
		},
		VariablePaths: []string{"nomad/jobs", "nomad/jobs/shop"},
		Secret:        readVault,
		Pairs:         readConsul,
	}
}

func render(text string, s template.Sources) (string, error) {
	r, err := template.Render(context.Background(), template.Text{Name: "t", Text: text}, s)
	return r.Text, err
}

// TestTemplateFunctions has one example at least of each function; docs/templates.md lists them.
func TestTemplateFunctions(t *testing.T) {
	examples := map[string]string{
		`{{ env "NAME" }}{{ env "NONE" }}`: "value", `{{ envOrDefault "EMPTY" "x" }}`: "x", `{{ mustEnv "NAME" }}`: "value",
		`{{ with file "local/conf" | parseJSON }}{{ .b }}{{ index .a 1 }}{{ end }}`:                                                                       "x2",
		`{{ range nomadService "web" }}{{ .Address }}:{{ .Port }} {{ end }}`:                                                                              "10.0.0.1:8080 10.0.0.2:80 ",
		`{{ range nomadService "v2.web" }}{{ .Address }}{{ end }}`:                                                                                        "10.0.0.2",
		`{{ len (nomadService 1 "key" "web") }}`:                                                                                                          "1",
		`{{ range nomadServices }}{{ .Name }}={{ .Tags | join "," }};{{ end }}`:                                                                           "db=;web=blue,v1,v2;",
		`{{ range nomadService "web" }}{{ if .Tags.Contains "v2" }}{{ .ID }}{{ end }}{{ end }}`:                                                           "b",
		`{{ range $port, $s := nomadService "web" | byPort }}{{ $port }}={{ len $s }} {{ end }}`:                                                          "80=1 8080=1 ",
		`{{ range $tag, $s := nomadService "web" | byTag }}{{ $tag }}{{ len $s }} {{ end }}`:                                                              "blue1 v11 v21 ",
		`{{ range nomadService "web" }}{{ if .Tags | contains "v1" }}{{ .ID }}{{ end }}{{ end }}`:                                                         "a",
		`{{ with nomadVar "nomad/jobs/shop" }}{{ .user }}:{{ .password | toUpper }}{{ end }}`:                                                             "a:GEHEIM",
		`{{ with nomadVar "/nomad/jobs/shop/" }}{{ .Keys }}{{ .Values }}{{ range .Tuples }}{{ .K }}={{ .V }};{{ end }}{{ end }}`:                          "[password user][geheim a]password=geheim;user=a;",
		`{{ nomadVarExists "nomad/jobs" }}{{ nomadVarExists "nomad/jobs/shop" }}`:                                                                         "falsetrue",
		`{{ range nomadVarList "nomad" }}{{ .Path }}{{ . }}{{ end }}{{ len (nomadVarListSafe "x") }}`:                                                     "nomad/jobs/shopnomad/jobs/shop0",
		`{{ with secret "kv/data/db" }}{{ .Data.data.password }}{{ end }}{{ secrets "kv/metadata" }}`:                                                     "geheim[db web]",
		`{{ timestamp }} {{ timestamp "unix" }} {{ timestamp "2006" }}`:                                                                                   "2026-03-04T05:06:07Z 1772600767 2026",
		`{{ define "x" }}<{{ . }}>{{ end }}{{ executeTemplate "x" "y" }}{{ template "x" 1 }}`:                                                             "<y><1>",
		`{{ range loop 3 }}{{ . }}{{ end }}{{ range loop 5 7 }}{{ . }}{{ end }}`:                                                                          "01256",
		`{{ sockaddr "range . | limit 1" "}}{{ . }}{{ end" }}`:                                                                                            "10.0.0.1",
		`{{ with splitToMap "," "=" " a=1,b,c=2=3 " }}{{ toJSON . }}{{ end }}{{ len (split "," " ") }}`:                                                   `{"a":"1","c":"2=3"}0`,
		`{{ mergeMap (parseJSON "{\"a\":{\"x\":1},\"b\":0,\"c\":1}") (parseJSON "{\"a\":{\"x\":2,\"y\":3},\"b\":4,\"c\":5}") | toJSON }}`:                 `{"a":{"x":1,"y":3},"b":4,"c":1}`,
		`{{ mergeMapWithOverride (parseJSON "{\"a\":{\"x\":1},\"c\":1}") (parseJSON "{\"a\":{\"x\":2},\"c\":\"\"}") | toJSON }}`:                          `{"a":{"x":2},"c":1}`,
		`{{ parseJSON "{\"a/b\":1,\"a/c/d\":2,\"e\":3}" | explodeMap | toJSON }}`:                                                                         `{"a":{"b":1,"c":{"d":2}},"e":3}`,
		`{{ with parseYAML "a: 1\nb: {c: x}" }}{{ toTOML . }}{{ end }}`:                                                                                   "a = 1\n\n[b]\n  c = \"x\"",
		`{{ scratch.Set "a" 1 }}{{ scratch.SetX "a" 2 }}{{ scratch.Get "a" }}{{ scratch.Key "b" }}{{ scratch.Get "b" }}`:                                  "1false<no value>",
		`{{ scratch.MapSet "m" "y" 1 }}{{ scratch.MapSet "m" "x" 2 }}{{ scratch.MapSetX "m" "x" 3 }}{{ scratch.MapValues "m" }}{{ (scratch.Get "m").y }}`: "[2 1]1",
		`{{ "one two-three it's" | toTitle }}{{ "ab" | contains "b" }}{{ in "ab" "c" }}`:                                                                  "One Two-Three It'struefalse",
		`{{ "a,b" | split "," | join "-" }}`:                                                                                                              "a-b",
		`{{ " x " | trimSpace }}{{ "xyx" | trim "x" }}{{ "abc" | trimPrefix "a" | trimSuffix "c" }}`:                                                      "xyb",
		`{{ toLower "A" }}{{ toUpper "b" }}{{ toTitle "one two" }}`:                                                                                       "aBOne Two",
		`{{ "a-a" | replaceAll "a" "b" }}{{ "a1" | regexMatch "[0-9]" }}{{ "a1" | regexReplaceAll "([0-9])" "<$1>" }}`:                                    "b-btruea<1>",
		`{{ indent 2 "a\nb" }}`: "  a\n  b",
		`{{ key "shop/a" }}{{ keyExists "none" }}{{ keyOrDefault "none" "d" }}{{ len (ls "shop") }}{{ len (tree "shop") }}`: "1falsed12",
		`{{ print "a" 1 }}{{ printf "%03d" 7 }}{{ println }}{{ html "<" }}{{ js "'" }}{{ urlquery "a b" }}`:                 "a1007\n&lt;\\'a+b",
		`{{ base64Encode "a?>" }}{{ base64Decode "YT8+" }}{{ base64URLEncode "a?>" }}{{ base64URLDecode "YT8-" }}`:          "YT8+a?>YT8-a?>",
		`{{ sha256Hex "" }}`: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", `{{ md5sum "" }}`: "d41d8cd98f00b204e9800998ecf8427e",
		`{{ hmacSHA256Hex "what do ya want for nothing?" "Jefe" }}`:                                                    "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
		`{{ with parseJSON "{\"a\":\"<\"}" }}{{ toJSON . }}{{ toUnescapedJSON . }}{{ end }}`:                           `{"a":"\u003c"}{"a":"<"}`,
		`{{ parseJSON "[1]" | toJSONPretty }}{{ parseJSON "[2]" | toUnescapedJSONPretty }}`:                            "[\n  1\n][\n  2\n]",
		`{{ with parseYAML "a: [1, 2]" }}{{ toYAML . }}{{ end }}`:                                                      "a:\n    - 1\n    - 2",
		`{{ parseInt "4" | add 3 }} {{ 7 | subtract 2 }} {{ 3 | multiply 1.5 }} {{ 7 | divide 2 }} {{ 7 | modulo 4 }}`: "7 5 4.5 3 3",
		`{{ minimum 2 3 }}{{ maximum 2 3 }}{{ parseUint "5" }}{{ parseFloat "1.5" }}{{ parseBool "true" }}`:            "2351.5true",
		`{{ $l := split "," "a,b" }}{{ in $l "a" }} {{ containsAll (split "," "a,b") $l }} {{ containsAny (split "," "x,b") $l }} {{ containsNone (split "," "x") $l }} {{ containsNotAll (split "," "a,x") $l }}`: "true true true true true",
	}
	maps.Copy(examples, sprigExamples)
	works, _ := template.Functions()
	shown := map[string]bool{}
	for text, want := range examples {
		if got, err := render(text, sources()); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %q", text, got, err, want)
		}
		for _, name := range works {
			if strings.Contains(text, name) {
				shown[name] = true
			}
		}
	}
	for _, name := range works {
		if !shown[name] {
			t.Errorf("no example has the function %s", name)
		}
	}
}

// TestTemplateDocumentation: docs/templates.md names each function that works, and each that does not.
func TestTemplateDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../docs/templates.md")
	if err != nil {
		t.Fatal(err)
	}
	works, refuses := template.Functions()
	yes, no, ok := strings.Cut(string(text), "## Functions that do not work")
	if !ok {
		t.Fatal("docs/templates.md has no section of functions that do not work")
	}
	_, yes, _ = strings.Cut(yes, "## Functions\n")
	for section, names := range map[string][]string{yes: works, no: refuses} {
		var listed []string
		for line := range strings.Lines(section) {
			cells := strings.Split(line, "|")
			if len(cells) < 3 || !strings.Contains(cells[1], "`") {
				continue
			}
			for _, name := range strings.Fields(cells[1]) {
				listed = append(listed, strings.Trim(name, "`"))
			}
		}
		slices.Sort(listed)
		if !slices.Equal(listed, names) {
			t.Errorf("docs/templates.md lists\n%v, and there are\n%v", listed, names)
		}
	}
}

func TestTemplatesThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{{ if }}`:     "t:1: missing value for if",
		"a\n{{ foo }}": `t:2: function "foo" not defined`,
		`{{ with pkiCert "a" }}{{ .Data }}{{ end }}`:             "t:1:8: the function pkiCert is not supported: no certificates are made",
		"\n{{ safeLs \"a\" }}":                                   "t:2:3: the function safeLs is not supported: templates read keys of Consul alone",
		`{{ range service "a" }}{{ end }}`:                       "templates read keys of Consul alone",
		`{{ if true }}{{ else }}{{ len (safeLs "a") }}{{ end }}`: "templates read keys of Consul alone",
		`{{ writeToFile "a" "" "" "0600" "x" }}`:                 "writes no other file",
		`{{ spew_sdump 1 }}`:                                     "does not exist here",
		`{{ sprig_uuidv4 }}`:                                     `function "sprig_uuidv4" not defined`,
		strings.Repeat("x", template.MaxBytes+1):                 "at most 4 MiB",
	} {
		err := template.Check(template.Text{Name: "t", Text: text})
		if code := fleet.CodeOf(err); code != fleet.CodeInvalid && code != fleet.CodeUnsupported || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
	if err := template.Check(template.Text{Text: `[[ env "A" ]] {{ foo }}`, Left: "[[", Right: "]]"}); err != nil {
		t.Errorf("other delimiters: %v", err)
	}
}

func TestTemplatesAreBounded(t *testing.T) {
	for text, want := range map[string]string{
		`{{ range 100000000000 }}{{ end }}`:                                                     "steps",
		`{{ range loop 99999 }}{{ range loop 99999 }}{{ end }}{{ end }}`:                        "steps",
		`{{ range loop 100000 }}0123456789012345678901234567890123456789012345{{ end }}`:        "more than 4 MiB",
		`{{ $x := "0123456789" }}{{ range loop 40 }}{{ $x = print $x $x }}{{ end }}`:            "more than 4 MiB",
		`{{ $x := "aaaaaaaaaa" }}{{ range loop 40 }}{{ $x = replaceAll "a" "aa" $x }}{{ end }}`: "more than 4 MiB",
		`{{ loop 1000000000 }}`:           "at most 100000 turns",
		`{{ sprig_until 1000000000 }}`:    "at most 100000 numbers",
		`{{ sprig_repeat 10000000 "a" }}`: "more than 4 MiB",
		`{{ sprig_indent 10000000 "a" }}`: "more than 4 MiB",
		`{{ $x := sprig_list 1 }}{{ range loop 40 }}{{ $x = sprig_list $x $x }}{{ end }}`:                                                 "more than 4 MiB",
		`{{ $x := sprig_list 1 }}{{ range loop 40 }}{{ $x = sprig_concat $x $x }}{{ end }}`:                                               "more than 4 MiB",
		`{{ $x := sprig_dict }}{{ range loop 40 }}{{ $x = sprig_dict "a" $x "b" $x }}{{ end }}`:                                           "more than 4 MiB",
		`{{ $x := sprig_dict }}{{ range loop 200 }}{{ $x = sprig_dict "a" $x }}{{ end }}`:                                                 "more than 4 MiB",
		`{{ $x := sprig_dict "a" "b" }}{{ range loop 40 }}{{ $x = mergeMap (sprig_dict (print . "a") $x (print . "b") $x) $x }}{{ end }}`: "more than 4 MiB",
		`{{ range loop 9999 }}{{ scratch.Set (print .) (sprig_repeat 1000 "a") }}{{ end }}`:                                               "more than 4 MiB",
		`{{ range loop 9999 }}{{ scratch.MapSet "m" (print .) (sprig_repeat 1000 "a") }}{{ end }}`:                                        "more than 4 MiB",
		`{{ scratch.Set "s" scratch }}`: "more than 4 MiB",
		`{{ range loop 40 }}{{ scratch.MapSet "m" (print .) (scratch.Get "m") }}{{ end }}`: "more than 4 MiB",
		`{{ containsAny (loop 2000) (loop 2000 4000) }}`:                                   "compares more than",
		`{{ sprig_uniq (loop 2000) }}`:                                                     "compares more than",
		`{{ sockaddr "range 100000000000 }}{{ end" }}`:                                     "steps",
		`{{ explodeMap (sprig_dict (sprig_repeat 200 "a/") 1) }}`:                          "more than 100 parts",
		`{{ define "a" }}{{ executeTemplate "a" }}{{ end }}{{ template "a" }}`:             "calls itself",
	} {
		if got, err := render(text, sources()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d bytes, %v; want %q", text, len(got), err, want)
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("the time is over"))
	_, err := template.Render(ctx, template.Text{Text: `{{ range loop 1000 }}{{ end }}`}, sources())
	if err == nil || !strings.Contains(err.Error(), "the time is over") {
		t.Errorf("with a context that ended: %v", err)
	}
}

func TestMissingKeysAndSources(t *testing.T) {
	const text = `{{ with parseJSON "{}" }}{{ .none }}{{ end }}x`
	if got, err := render(text, sources()); err != nil || !strings.HasSuffix(got, "x") {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := template.Render(context.Background(), template.Text{Text: `{{ with parseJSON "{\"a\":1}" }}{{ .none }}{{ end }}`, MissingKey: true}, sources()); err == nil || errors.Is(err, template.ErrSource) {
		t.Errorf("a key that is missing: %v", err)
	}
	if _, err := render(`{{ file "none" }}`, sources()); !errors.Is(err, template.ErrSource) {
		t.Errorf("a file that is missing: %v", err)
	}
	s := sources()
	s.Services = func(string) ([]template.Service, error) { return nil, errors.New("away") }
	if _, err := render(`{{ nomadService "web" }}`, s); !errors.Is(err, template.ErrSource) {
		t.Errorf("services that are away: %v", err)
	}
	s.Addresses = func() (any, map[string]any, error) { return nil, nil, errors.New("away") }
	if _, err := render(`{{ sockaddr "GetPrivateIP" }}`, s); !errors.Is(err, template.ErrSource) {
		t.Errorf("addresses that are away: %v", err)
	}
	if _, err := render(`{{ mustEnv "NONE" }}`, s); err == nil || errors.Is(err, template.ErrSource) {
		t.Errorf("a variable that is missing: %v", err)
	}
}

func FuzzRender(f *testing.F) {
	f.Add(`{{ range loop 3 }}{{ . }}{{ end }}`)
	f.Add(`{{ scratch.Set "a" (sprig_dict "b" (sprig_list 1 "c")) }}{{ sockaddr "limit 1 ." }}{{ toTOML (scratch.Get "a") }}`)
	f.Add(`{{ define "a" }}{{ nomadService "web" | toJSON }}{{ end }}{{ template "a" }}`)
	f.Fuzz(func(t *testing.T, text string) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		got, err := template.Render(ctx, template.Text{Text: text}, sources())
		if check := template.Check(template.Text{Text: text}); check != nil && err == nil {
			t.Errorf("it renders %q, and Check says %v", got.Text, check)
		}
	})
}
