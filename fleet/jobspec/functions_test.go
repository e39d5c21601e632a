package jobspec_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	"skerry/fleet/jobspec"
)

// TestFunctions calls every function that the public documentation of HCL2 job files
// lists. What gives another value each time is refused by name.
func TestFunctions(t *testing.T) {
	const again = "!it gives another value each time"
	for expr, want := range map[string]string{
		`abs(-3)`: "3", `ceil(3.2)`: "4", `floor(3.8)`: "3", `log(16, 2)`: "4", `max([1, 7, 3]...)`: "7", `min(4, 2)`: "2",
		`parseint("ff", 16)`: "255", `pow(2, 10)`: "1024", `signum(-9)`: "-1",

		`chomp("a\n")`: "a", `format("%s-%03d", "a", 7)`: "a-007", `formatlist("%s!", ["a", "b"])`: `["a!","b!"]`,
		`indent(2, "a\nb")`: "a\n  b", `join(",", ["a", "b"])`: "a,b", `lower("AB")`: "ab", `regex("[0-9]+", "ab12")`: "12",
		`regexall("[0-9]", "a1b2")`: `["1","2"]`, `regex_replace("a1", "[0-9]", "x")`: "ax", `replace("a.b", ".", "-")`: "a-b",
		`split(",", "a,b")`: `["a","b"]`, `strlen("æ")`: "1", `strrev("abc")`: "cba", `substr("hello", 1, 3)`: "ell", `title("ab cd")`: "Ab Cd",
		`trim("?a?", "?")`: "a", `trimprefix("va", "v")`: "a", `trimspace(" a ")`: "a", `trimsuffix("a.x", ".x")`: "a", `upper("ab")`: "AB",

		`chunklist([1, 2, 3], 2)`: "[[1,2],[3]]", `coalesce(null, "a")`: "a", `coalescelist([], [1])`: "[1]", `compact(["a", ""])`: `["a"]`,
		`concat([1], [2])`: "[1,2]", `contains(["a"], "a")`: "true", `distinct(["a", "a"])`: `["a"]`, `element(["a", "b"], 3)`: "b",
		`flatten([[1], [2, [3]]])`: "[1,2,3]", `index(["a", "b"], 1)`: "b", `keys({ b = 1, a = 2 })`: `["a","b"]`, `length("abc") + length([1])`: "!",
		`length([1, 2])`: "2", `lookup({ a = 1 }, "b", 7)`: "7", `merge({ a = 1 }, { b = 2 })`: `{"a":1,"b":2}`, `range(3)`: "[0,1,2]",
		`reverse([1, 2])`: "[2,1]", `setintersection(["a", "b"], ["b"])`: `["b"]`, `setproduct(["a"], ["x", "y"])`: `[["a","x"],["a","y"]]`,
		`setunion(["a"], ["b"])`: `["a","b"]`, `slice([1, 2, 3], 1, 2)`: "[2]", `sort(["b", "a"])`: `["a","b"]`, `values({ a = 1 })`: "[1]",
		`zipmap(["a"], [1])`: `{"a":1}`,

		`base64decode("YQ==")`: "a", `base64encode("a")`: "YQ==", `csvdecode("a,b\n1,2")`: `[{"a":"1","b":"2"}]`, `jsondecode("{\"a\": [1]}").a[0]`: "1",
		`jsonencode({ a = 1 })`: `{"a":1}`, `urlencode("a b")`: "a+b",

		`yamldecode("a: 1\nb: [x, 'yes', yes, ~, 1.5, 0x10, 1_000]\n")`:                  `{"a":1,"b":["x","yes",true,null,1.5,16,1000]}`,
		`yamldecode("base: &b { n: 1, m: 2 }\nown:\n  m: 3\n  <<: *b\n").own`:            `{"m":3,"n":1}`,
		`yamldecode("a: &a {x: 1}\nb: &b {x: 2, y: 2}\nc: {<<: [*a, *b], z: 3}").c`:      `{"x":1,"y":2,"z":3}`,
		`yamldecode("l: &l [1, 2]\nm: *l\nd: 2026-01-02\nt: |\n  two\n  lines\n2: x\n")`: `{"2":"x","d":"2026-01-02T00:00:00Z","l":[1,2],"m":[1,2],"t":"two\nlines\n"}`,
		`yamldecode("a: 1e600000000").a`:                                                 "1e600000000", `yamldecode("!!float .5e99999")`: "!is not a number that a job may have", `yamldecode(".inf")`: "!is not a number",
		`yamldecode("!!str 12")`:                       "12",
		`yamldecode("")`:                               "!decode YAML",
		`yamldecode("a: [")`:                           "!decode YAML: line 1",
		`yamldecode("a: 1\n---\nb: 2")`:                "!more than one document",
		`yamldecode("a: 1\n---\nb: [")`:                "!decode YAML: line 3",
		`yamldecode("# nothing")`:                      "!decode YAML: there is no value in it",
		`yamldecode("a: 1\na: 2")`:                     `!line 2: the key "a" is defined twice`,
		`yamldecode("a: !shop x")`:                     "!unknown tag !shop",
		`yamldecode("[a]: x")`:                         "!a key must be text",
		`yamldecode("<<: 7")`:                          "!<< needs a mapping",
		`yamlencode({ a = [1, "x", null], b = true })`: "\"a\":\n  - 1\n  - \"x\"\n  - null\n\"b\": true\n",
		`yamldecode(yamlencode({ a = "on", b = " two\nlines", c = [], d = {}, e = "1", f = 1.5 }))`: `{"a":"on","b":" two\nlines","c":[],"d":{},"e":"1","f":1.5}`,
		`yamlencode(1 / 4)`: "0.25\n",

		`abspath("x")`: "/jobs/x", `pathexpand("~")`: "/home/~", `basename("a/b.c")`: "b.c", `dirname("a/b.c")`: "a", `file("conf/a.conf")`: "A",
		`filebase64("conf/a.conf")`: "QQ==", `fileexists("conf/a.conf")`: "true", `fileexists("conf/z.conf")`: "false",
		`fileset("conf", "*.conf")`: `["a.conf","b.conf"]`, `fileset("conf", "*.y")`: "[]", `file("none")`: "!read none:",
		`{ for f in fileset("conf", "*.conf") : f => file("conf/${f}") }`: `{"a.conf":"A","b.conf":"B"}`,

		`formatdate("YYYY-MM-DD", "2026-01-02T03:04:05Z")`: "2026-01-02", `timeadd("2026-01-02T03:04:05Z", "1h")`: "2026-01-02T04:04:05Z",

		`md5("a")`: "0cc175b9c0f1b6a831c399e269772661", `sha1("a")`: "86f7e437faa5a7fce15d1ddcb9eaeaea377667b8",
		`sha256("")`: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", `strlen(sha512("a"))`: "128",
		`rsadecrypt("!", "x")`: "!decode base64", `rsadecrypt("YQ==", "x")`: "!RSA PRIVATE KEY",
		`uuidv5("dns", "example.com")`: "cfbff0d1-9375-5685-968c-48ce8b15ae17",

		`cidrhost("10.12.127.0/20", 16)`: "10.12.112.16", `cidrhost("10.12.127.0/20", -1)`: "10.12.127.255", `cidrhost("fd00:fd12:3456:7890::/64", 34)`: "fd00:fd12:3456:7890::22",
		`cidrnetmask("172.16.0.0/12")`: "255.240.0.0", `cidrsubnet("172.16.0.0/12", 4, 2)`: "172.18.0.0/16", `cidrsubnet("10.1.2.0/24", 4, 15)`: "10.1.2.240/28",
		`cidrsubnets("10.1.0.0/16", 4, 4, 8, 4)`: `["10.1.0.0/20","10.1.16.0/20","10.1.32.0/24","10.1.48.0/20"]`,
		`cidrhost("10.0.0.0/30", 4)`:             "!prefix of 30", `cidrsubnet("10.0.0.0/8", 40, 1)`: "!more than 32 bits", `cidrsubnets("10.0.0.0/30", 1000000)`: "!may not extend",
		`cidrhost("10.0.0.0", 1)`: "!invalid CIDR", `cidrsubnet("10.0.0.0/8", -4, 0)`: "!newbits", `cidrsubnet("10.0.0.0/8", 4, -1)`: "!netnum",

		`can(file("none"))`: "false", `convert("7", number)`: "7", `try(file("none"), "else")`: "else", `tobool("true")`: "true", `tolist(["a"])`: `["a"]`,
		`tomap({ a = "b" })`: `{"a":"b"}`, `tonumber("7")`: "7", `toset(["a", "a"])`: `["a"]`, `tostring(7)`: "7",

		`timestamp()`: again, `uuidv4()`: again, `bcrypt("a")`: again, `cidrhots("10.0.0.0/8", 1)`: "!cidrhost",
	} {
		t.Run(expr, func(t *testing.T) {
			got, err := evaluated(expr, texts{"conf/a.conf": "A", "conf/b.conf": "B", "conf/c.x/d.conf": "D"})
			if wrong, fails := strings.CutPrefix(want, "!"); fails {
				if err == nil || !strings.Contains(err.Error(), wrong) || strings.Contains(err.Error(), "panic") {
					t.Errorf("%q, %v: want an error with %q", got, err, wrong)
				}
			} else if err != nil || got != want {
				t.Errorf("%q, %v: want %q", got, err, want)
			}
		})
	}
}

// evaluated is the value of an expression: text as it is, what it is made of as JSON.
func evaluated(expr string, files jobspec.Files) (string, error) {
	src := "locals {\n  v = " + expr + "\n}\njob \"j\" {\n  meta = { v = try(tostring(local.v), jsonencode(local.v)) }\n  group \"g\" {\n    task \"t\" {\n      driver = \"raw_exec\"\n    }\n  }\n}\n"
	job, err := jobspec.Parse("f.hcl", []byte(src), jobspec.Options{Files: files})
	if err != nil {
		return "", err
	}
	return job.Meta["v"], nil
}

// TestFileFunctionsOfAHub refuses what looks at files where there are none.
func TestFileFunctionsOfAHub(t *testing.T) {
	for _, expr := range []string{`file("a")`, `filebase64("a")`, `fileexists("a")`, `fileset("a", "*")`, `abspath("a")`, `pathexpand("~")`} {
		if got, err := evaluated(expr, nil); err == nil || !strings.Contains(err.Error(), "files cannot be read here") {
			t.Errorf("%s: %q, %v", expr, got, err)
		}
	}
}

func TestRSADecrypt(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	private := string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	//lint:ignore SA1019 what rsadecrypt decrypts
	hidden, err := rsa.EncryptPKCS1v15(rand.Reader, &key.PublicKey, []byte("open sesame"))
	if err != nil {
		t.Fatal(err)
	}
	secret := base64.StdEncoding.EncodeToString(hidden)
	if got, err := evaluated(fmt.Sprintf("rsadecrypt(%q, file(\"key.pem\"))", secret), texts{"key.pem": private}); got != "open sesame" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := evaluated(`rsadecrypt("YWJj", file("key.pem"))`, texts{"key.pem": private}); err == nil {
		t.Errorf("what it does not decrypt: %q", got)
	}
	if _, err := evaluated(fmt.Sprintf("[for i in range(20): rsadecrypt(%q, file(\"key.pem\"))]", secret), texts{"key.pem": private}); err == nil {
		t.Error("twenty of them: no error")
	}
}
