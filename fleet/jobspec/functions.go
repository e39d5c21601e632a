package jobspec

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2/ext/tryfunc"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"

	"skerry/fleet"
)

// functions are what expressions may call. Those that read files need readFile. The
// ones that give another value at every call (timestamp, uuid) are left out: planning
// a file twice must give the same job.
func functions(readFile func(string) ([]byte, error)) map[string]function.Function {
	m := map[string]function.Function{
		"abs": stdlib.AbsoluteFunc, "ceil": stdlib.CeilFunc, "floor": stdlib.FloorFunc, "log": stdlib.LogFunc,
		"max": stdlib.MaxFunc, "min": stdlib.MinFunc, "parseint": stdlib.ParseIntFunc, "pow": stdlib.PowFunc,
		"signum": stdlib.SignumFunc,

		"chomp": stdlib.ChompFunc, "format": stdlib.FormatFunc, "formatlist": stdlib.FormatListFunc,
		"indent": stdlib.IndentFunc, "join": stdlib.JoinFunc, "lower": stdlib.LowerFunc, "regex": stdlib.RegexFunc,
		"regexall": stdlib.RegexAllFunc, "regex_replace": stdlib.RegexReplaceFunc, "replace": stdlib.ReplaceFunc,
		"split": stdlib.SplitFunc, "strlen": stdlib.StrlenFunc, "strrev": stdlib.ReverseFunc,
		"substr": stdlib.SubstrFunc, "title": stdlib.TitleFunc, "trim": stdlib.TrimFunc,
		"trimprefix": stdlib.TrimPrefixFunc, "trimspace": stdlib.TrimSpaceFunc, "trimsuffix": stdlib.TrimSuffixFunc,
		"upper": stdlib.UpperFunc,

		"chunklist": stdlib.ChunklistFunc, "coalesce": stdlib.CoalesceFunc, "coalescelist": stdlib.CoalesceListFunc,
		"compact": stdlib.CompactFunc, "concat": stdlib.ConcatFunc, "contains": stdlib.ContainsFunc,
		"distinct": stdlib.DistinctFunc, "element": stdlib.ElementFunc, "flatten": stdlib.FlattenFunc,
		"index": stdlib.IndexFunc, "keys": stdlib.KeysFunc, "length": stdlib.LengthFunc, "lookup": stdlib.LookupFunc,
		"merge": stdlib.MergeFunc, "range": stdlib.RangeFunc, "reverse": stdlib.ReverseListFunc,
		"setintersection": stdlib.SetIntersectionFunc, "setproduct": stdlib.SetProductFunc,
		"setunion": stdlib.SetUnionFunc, "slice": stdlib.SliceFunc, "sort": stdlib.SortFunc,
		"values": stdlib.ValuesFunc, "zipmap": stdlib.ZipmapFunc,

		"csvdecode": stdlib.CSVDecodeFunc, "jsondecode": stdlib.JSONDecodeFunc, "jsonencode": stdlib.JSONEncodeFunc,
		"formatdate": stdlib.FormatDateFunc, "timeadd": stdlib.TimeAddFunc,
		"can": tryfunc.CanFunc, "try": tryfunc.TryFunc, "convert": typeexpr.ConvertFunc,

		"tobool": stdlib.MakeToFunc(cty.Bool), "tonumber": stdlib.MakeToFunc(cty.Number),
		"tostring": stdlib.MakeToFunc(cty.String), "tolist": stdlib.MakeToFunc(cty.List(cty.DynamicPseudoType)),
		"tomap": stdlib.MakeToFunc(cty.Map(cty.DynamicPseudoType)), "toset": stdlib.MakeToFunc(cty.Set(cty.DynamicPseudoType)),

		"base64encode": textFunc(func(s string) (string, error) { return base64.StdEncoding.EncodeToString([]byte(s)), nil }),
		"base64decode": textFunc(decodeBase64),
		"urlencode":    textFunc(func(s string) (string, error) { return url.QueryEscape(s), nil }),
		"md5":          textFunc(func(s string) (string, error) { h := md5.Sum([]byte(s)); return hex.EncodeToString(h[:]), nil }),
		"sha1":         textFunc(func(s string) (string, error) { h := sha1.Sum([]byte(s)); return hex.EncodeToString(h[:]), nil }),
		"sha256":       textFunc(func(s string) (string, error) { h := sha256.Sum256([]byte(s)); return hex.EncodeToString(h[:]), nil }),
		"sha512":       textFunc(func(s string) (string, error) { h := sha512.Sum512([]byte(s)); return hex.EncodeToString(h[:]), nil }),
		"basename":     textFunc(func(s string) (string, error) { return path.Base(s), nil }),
		"dirname":      textFunc(func(s string) (string, error) { return path.Dir(s), nil }),
		"cidrnetmask":  textFunc(netmask),
		"uuidv5":       twoTexts(uuidV5),
		"startswith":   twoTextsTrue(strings.HasPrefix),
		"endswith":     twoTextsTrue(strings.HasSuffix),
		"strcontains":  twoTextsTrue(strings.Contains),
		"filebase64": textFunc(func(name string) (string, error) {
			b, err := readBounded(readFile, name)
			return base64.StdEncoding.EncodeToString(b), err
		}),
		"file": textFunc(func(name string) (string, error) { return readText(readFile, name) }),
	}
	return m
}

// textFunc makes a function of one text that gives a text.
func textFunc(f func(string) (string, error)) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "text", Type: cty.String}},
		Type:   function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			out, err := f(args[0].AsString())
			if err != nil {
				return cty.UnknownVal(cty.String), err
			}
			return cty.StringVal(out), nil
		},
	})
}

// twoTexts makes a function of two texts that gives a text.
func twoTexts(f func(a, b string) (string, error)) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "a", Type: cty.String}, {Name: "b", Type: cty.String}},
		Type:   function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			out, err := f(args[0].AsString(), args[1].AsString())
			if err != nil {
				return cty.UnknownVal(cty.String), err
			}
			return cty.StringVal(out), nil
		},
	})
}

// twoTextsTrue makes a function that says something of two texts.
func twoTextsTrue(f func(a, b string) bool) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "text", Type: cty.String}, {Name: "part", Type: cty.String}},
		Type:   function.StaticReturnType(cty.Bool),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			return cty.BoolVal(f(args[0].AsString(), args[1].AsString())), nil
		},
	})
}

// namespaces are those of RFC 9562; another one is given as a UUID.
var namespaces = map[string]string{
	"dns": "6ba7b8109dad11d180b400c04fd430c8", "url": "6ba7b8119dad11d180b400c04fd430c8",
	"oid": "6ba7b8129dad11d180b400c04fd430c8", "x500": "6ba7b8149dad11d180b400c04fd430c8",
}

// uuidV5 makes a UUID out of a name, the same at every call.
func uuidV5(space, name string) (string, error) {
	digits, known := namespaces[space]
	if !known {
		digits = strings.ReplaceAll(space, "-", "")
	}
	prefix, err := hex.DecodeString(digits)
	if err != nil || len(prefix) != 16 {
		return "", fmt.Errorf("%q is no namespace: dns, url, oid, x500 or a UUID", space)
	}
	h := sha1.Sum(append(prefix, name...))
	u := h[:16]
	u[6], u[8] = u[6]&0x0f|0x50, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:]), nil
}

func decodeBase64(s string) (string, error) {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return "", fmt.Errorf("decode base64: %w", err)
	}
	if !utf8.Valid(b) {
		return "", fmt.Errorf("decode base64: the result is not text")
	}
	return string(b), nil
}

func netmask(s string) (string, error) {
	prefix, err := netip.ParsePrefix(s)
	if err != nil || !prefix.Addr().Is4() {
		return "", fmt.Errorf("%q is not an IPv4 network", s)
	}
	mask := uint32(0xffffffff) << (32 - prefix.Bits())
	return netip.AddrFrom4([4]byte{byte(mask >> 24), byte(mask >> 16), byte(mask >> 8), byte(mask)}).String(), nil
}

func readText(readFile func(string) ([]byte, error), name string) (string, error) {
	b, err := readBounded(readFile, name)
	if err == nil && !utf8.Valid(b) {
		err = fmt.Errorf("read %s: not text", name)
	}
	return string(b), err
}

func readBounded(readFile func(string) ([]byte, error), name string) ([]byte, error) {
	if readFile == nil {
		return nil, fmt.Errorf("files cannot be read here: parse the job file where they are")
	}
	b, err := readFile(name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(b) > fleet.MaxJobSize {
		return nil, fmt.Errorf("read %s: more than %d bytes", name, fleet.MaxJobSize)
	}
	return b, nil
}
