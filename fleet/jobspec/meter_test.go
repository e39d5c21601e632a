package jobspec_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/fleet/jobspec"
)

// grown is locals of which each is made of so many of the one before it.
func grown(first, format string, times int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "locals {\n  a00 = %s\n", first)
	for i := 1; i < 40; i++ {
		b.WriteString(fmt.Sprintf("  a%02d = ", i) + strings.ReplaceAll(format, "{}", strings.TrimSuffix(strings.Repeat(fmt.Sprintf("local.a%02d, ", i-1), times), ", ")) + "\n")
	}
	b.WriteString("}\n")
	return b.String()
}

// TestExpressionsAreBounded evaluates files of a few lines that ask for more than any
// machine has: each is refused, at the place, before it is made.
func TestExpressionsAreBounded(t *testing.T) {
	const tooMuch, number = "evaluating the file takes too much", "a number is out of range"
	named := func(expr string) string { return "job \"shop\" {\n  name = " + expr + "\n}\n" }
	thrice := "[for a in range(1000): [for b in range(1000): [for c in range(1000): 1]]]"
	for name, tc := range map[string]struct{ src, want string }{
		"text of texts":             {grown(`"0123456789"`, `join("", [{}])`, 10) + named("local.a39"), tooMuch},
		"text in text":              {grownText() + named("local.a39"), tooMuch},
		"lists of lists":            {grown(`"x"`, "[{}]", 10) + named("jsonencode(local.a39)"), tooMuch},
		"lists that are compared":   {grown(`"x"`, "[{}]", 2) + named("local.a39 == local.a38 ? 1 : 2"), tooMuch},
		"loops in loops":            {named("jsonencode(" + thrice + ")"), tooMuch},
		"loops that give nothing":   {named("jsonencode([for a in range(1000): [for b in range(1000): [for c in range(1000): 1 if false]]])"), tooMuch},
		"loops in a template":       {named(`"%{for a in range(1000)}%{for b in range(1000)}%{for c in range(1000)}x%{endfor}%{endfor}%{endfor}"`), tooMuch},
		"objects by loops":          {named("jsonencode({for a in setproduct(range(1000), range(100)): join(\"\", a) => a})"), tooMuch},
		"a product of sets":         {named("jsonencode(setproduct(range(1000), range(1000), range(1000)))"), tooMuch},
		"indentation":               {named(`indent(2000000000, "a\nb")`), tooMuch},
		"a wide format":             {named(`format("%1999999999d", 1)`), "a width of more than 10000"},
		"a format of many":          {"locals {\n  a = join(\"\", [for i in range(1000): \"0123456789012345678901234567890123456789\"])\n}\n" + named(`format("`+strings.Repeat("%[1]s", 1000)+`", local.a)`), tooMuch},
		"a long separator":          {"locals {\n  a = join(\"\", [for i in range(1000): \"0123456789012345678901234567890123456789\"])\n}\n" + named("join(local.a, [for i in range(1000): \"x\"])"), tooMuch},
		"a replacement":             {"locals {\n  a = join(\"\", [for i in range(1000): \"0123456789\"])\n}\n" + named(`replace(local.a, "", local.a)`), tooMuch},
		"a replacement by pattern":  {"locals {\n  a = join(\"\", [for i in range(1000): \"0123456789\"])\n}\n" + named(`regex_replace(local.a, "", local.a)`), tooMuch},
		"what a pattern finds":      {named("regexall(\"" + strings.Repeat("()", 900) + "\", \"" + strings.Repeat("x", 1000) + "\")"), tooMuch},
		"what is nested in a text":  {named(`jsondecode("` + strings.Repeat("[", 10_000) + `")`), "nested more than"},
		"a number of a large power": {grownNumber() + named(`"${local.a39}"`), number},
		"YAML of aliases":           {named(`jsonencode(yamldecode("` + nestedYAMLAliases() + `"))`), tooMuch},
		"YAML that merges aliases":  {named(`jsonencode(yamldecode("a: &a {` + strings.Join(numberedKeys(5000), ", ") + `}\nb: {` + strings.Repeat("<<: *a, ", 5000) + `}"))`), tooMuch},
		"YAML of many":              {"locals {\n  a = join(\"\", [for i in range(1000): \"" + strings.Repeat("- 1,", 100) + "\"])\n}\n" + named(`jsonencode(yamldecode("[${local.a}]"))`), tooMuch},
		"YAML within itself":        {named(`jsonencode(yamldecode("a: &a [*a]"))`), "decode YAML: "},
		"YAML that is nested":       {named(`jsonencode(yamldecode("` + strings.Repeat("[", 10_000) + `"))`), "decode YAML: "},
		"YAML that is nested deep":  {named(`jsonencode(yamldecode("` + strings.Repeat("- ", 150) + `x"))`), "nested more than 100 deep"},
		"YAML that is written":      {named(`yamlencode([for a in range(1000): range(300)])`), tooMuch},
		"YAML of what is nested":    {grown(`"x"`, "[[[[{}]]]]", 1) + named("yamlencode(local.a39)"), "nested more than 100 deep"},
		"keys that are read":        {named(`jsonencode([for i in range(100): can(rsadecrypt("", "")) ? 1 : 2])`), tooMuch},
		"networks":                  {"locals {\n  a = [for i in range(1000): 4]\n}\n" + named(`jsonencode([for i in range(1000): cidrsubnets("fd00::/16", local.a...)])`), tooMuch},
		"a number in a text":        {named(`"${jsondecode("1e600000000")}"`), number},
		"a number that is read":     {named(`upper("1e600000000" * 1)`), number},
		"a number of a function":    {named(`upper(tonumber("1e600000000"))`), number},
		"a number as a key":         {named(`jsonencode({(("1e600000000" * 1)) = 1})`), number},
		"blocks of blocks": {"job \"shop\" {\n  dynamic \"group\" {\n    for_each = range(1000)\n    labels = [group.value]\n    content {\n      dynamic \"task\" {\n" +
			"        for_each = range(100)\n        labels = [task.value]\n        content {\n          driver = \"raw_exec\"\n        }\n      }\n    }\n  }\n}\n", "make at most 10000 blocks"},
		"patterns of a few letters": {named(`jsonencode([for a in range(1000): [for b in range(1000): can(regex("(a{30}){30}", "x"))]])`), tooMuch},
		"patterns of classes":       {named(`jsonencode([for a in range(1000): regexall("[[:^alpha:]\\pL]", "x")])`), tooMuch},
		"sets of many":              {named(`jsonencode([for a in range(1000): setintersection(range(1000), range(1000))])`), tooMuch},
		"many locals":               {"locals {\n" + tooManyLines("  a%05d = local.a%05[2]d\n") + "  a02000 = 1\n}\n" + named("local.a00000"), "locals: at most 1000"},
		"many variables":            {"variables {\n" + tooManyLines("  a%05d = 1\n") + "}\n" + named("var.a00000"), "variables: at most 1000"},
		"loops in JSON":             {`{"job": {"shop": {"name": "${jsonencode(` + thrice + `)}"}}}`, tooMuch},
		"numbers in JSON":           {`{"job": {"shop": {"name": "${upper(\"1e600000000\" * 1)}"}}}`, number},
		"depth in JSON":             {`{"job": {"shop": {"name": "${` + strings.Repeat("(", 100_000) + `"}}}`, "nested more than"},
	} {
		t.Run(name, func(t *testing.T) {
			begun := time.Now()
			_, err := jobspec.Parse("shop", []byte(tc.src), jobspec.Options{})
			if took := time.Since(begun); took > 20*time.Second { // on a machine that has other things to do, too
				t.Errorf("it took %s to say so", took)
			}
			var ds jobspec.Diagnostics
			if !errors.As(err, &ds) || !strings.Contains(err.Error(), tc.want) || fleet.CodeOf(err) != fleet.CodeInvalid {
				t.Fatalf("got %.300v, want %q", err, tc.want)
			}
			if n := strings.Count(err.Error(), tc.want); n != 1 {
				t.Errorf("it is said %d times", n)
			}
		})
	}
}

// nestedYAMLAliases is YAML of lists, each ten times the one before it.
func nestedYAMLAliases() string {
	lines := []string{"a: &a [x,x,x,x,x,x,x,x,x,x]"}
	for c := 'b'; c < 'm'; c++ {
		lines = append(lines, fmt.Sprintf("%c: &%c [%s]", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 10), ",")))
	}
	return strings.Join(lines, `\n`)
}

func numberedKeys(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("k%d: 1", i)
	}
	return all
}

// grownText is locals that are texts, each ten times the one before it.
func grownText() string {
	var b strings.Builder
	b.WriteString("locals {\n  a00 = \"0123456789\"\n")
	for i := 1; i < 40; i++ {
		fmt.Fprintf(&b, "  a%02d = \"%s\"\n", i, strings.Repeat(fmt.Sprintf("${local.a%02d}", i-1), 10))
	}
	return b.String() + "}\n"
}

// grownNumber is locals that are numbers, each the square of the one before it.
func grownNumber() string {
	var b strings.Builder
	b.WriteString("locals {\n  a00 = 1e999\n")
	for i := 1; i < 40; i++ {
		fmt.Fprintf(&b, "  a%02d = local.a%02d * local.a%02d\n", i, i-1, i-1)
	}
	return b.String() + "}\n"
}

// tooManyLines is so many lines that no file may have them; the format is given the line's number
// and the next one's.
func tooManyLines(format string) string {
	var b strings.Builder
	for i := range 2000 {
		if strings.Contains(format, "[2]") {
			fmt.Fprintf(&b, format, i, i+1)
		} else {
			fmt.Fprintf(&b, format, i)
		}
	}
	return b.String()
}

// TestExpressionsWithinBounds evaluates what people do write.
func TestExpressionsWithinBounds(t *testing.T) {
	src := `
locals {
  sites  = { for s in setproduct(["north", "south"], range(20)) : "${s[0]}-${s[1]}" => { n = s[1] * 2 + 1, tags = distinct([s[0], "all", "all"]) } }
  config = file("large.conf")
}
job "shop" {
  meta {
    names = join(",", sort(keys(local.sites)))
    total = convert("7", number)
    types = jsonencode(convert({ a = "1" }, object({ a = number })))
    text  = format("%05.1f|%-10s|%s", 3.14159, "left", try(local.nope, "none"))
    lines = "%{for k, v in local.sites}%{if v.n > 35}${k} %{endif}%{endfor}"
  }
  group "g" {
    dynamic "task" {
      for_each = local.sites
      labels   = [task.key]
      content {
        driver = "raw_exec"
        config {
          command = "/bin/echo"
          args    = [task.value.n, replace(local.config, "a", "bb") == "" ? "empty" : "full"]
        }
      }
    }
  }
}
`
	large := strings.Repeat("a line of a large file\n", 4000)
	job, err := jobspec.Parse("shop.hcl", []byte(src), jobspec.Options{Files: texts{"large.conf": large[:8000]}})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"total": "7", "types": `{"a":1}`, "text": "003.1|left      |none", "lines": "north-18 north-19 south-18 south-19 ",
	}
	for k, v := range want {
		if job.Meta[k] != v {
			t.Errorf("%s: %q, want %q", k, job.Meta[k], v)
		}
	}
	if n := len(job.TaskGroups[0].Tasks); n != 40 || strings.Count(job.Meta["names"], ",") != 39 {
		t.Errorf("%d tasks, names %q", n, job.Meta["names"])
	}
}
