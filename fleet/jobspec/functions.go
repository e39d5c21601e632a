package jobspec

import (
	"crypto/md5"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/go-cty-funcs/cidr"
	"github.com/hashicorp/hcl/v2/ext/tryfunc"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// functions are those that expressions may call, except yamldecode, which counts its own cost.
// timestamp, uuidv4 and bcrypt are left out: parsing a file twice must give the same job.
func functions(files Files) map[string]function.Function {
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

		"csvdecode": stdlib.CSVDecodeFunc, "jsondecode": stdlib.JSONDecodeFunc, "jsonencode": stdlib.JSONEncodeFunc, "yamlencode": yamlEncode,
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

		"cidrhost": cidr.HostFunc, "cidrnetmask": textFunc(netmask), "cidrsubnet": notNegative(cidr.SubnetFunc), "cidrsubnets": cidr.SubnetsFunc,

		"uuidv5":      twoTexts(uuidV5),
		"startswith":  twoTextsTrue(strings.HasPrefix),
		"endswith":    twoTextsTrue(strings.HasSuffix),
		"strcontains": twoTextsTrue(strings.Contains),
		"rsadecrypt":  twoTexts(rsaDecrypt),
	}
	maps.Copy(m, fileFunctions(files))
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
		return "", fmt.Errorf("%q is not a namespace: use dns, url, oid, x500 or a UUID", space)
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

// notNegative refuses numbers below 0 for a function that would make something else of them.
func notNegative(f function.Function) function.Function {
	return function.New(&function.Spec{
		Params: f.Params(),
		Type:   func(args []cty.Value) (cty.Type, error) { return f.ReturnTypeForValues(args) },
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			for i, v := range args {
				if v.Type() == cty.Number && v.AsBigFloat().Sign() < 0 {
					return cty.NilVal, function.NewArgErrorf(i, "%s is negative", f.Params()[i].Name)
				}
			}
			return f.Call(args)
		},
	})
}

// maxKey bounds the text of a private key: one of 8,192 bits has less.
const maxKey = 8 << 10

// rsaDecrypt decrypts what is in base64 with a private key in PEM, without a password.
func rsaDecrypt(secret, key string) (string, error) {
	b, err := base64.StdEncoding.DecodeString(secret)
	if err != nil {
		return "", fmt.Errorf("decrypt: decode base64: %w", err)
	}
	if len(key) > maxKey {
		return "", fmt.Errorf("decrypt: a key of more than %d bytes", maxKey)
	}
	block, _ := pem.Decode([]byte(key))
	if block == nil || block.Type != "RSA PRIVATE KEY" || block.Headers["Proc-Type"] != "" {
		return "", fmt.Errorf("decrypt: the key is not one in PEM that begins with RSA PRIVATE KEY and has no password")
	}
	private, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("decrypt: read the key: %w", err)
	}
	//lint:ignore SA1019 the function is what it is, and who calls it gives the key
	out, err := rsa.DecryptPKCS1v15(nil, private, b)
	if err != nil {
		return "", fmt.Errorf("decrypt: %w", err)
	}
	if !utf8.Valid(out) {
		return "", fmt.Errorf("decrypt: the result is not text")
	}
	return string(out), nil
}

func netmask(s string) (string, error) {
	prefix, err := netip.ParsePrefix(s)
	if err != nil || !prefix.Addr().Is4() {
		return "", fmt.Errorf("%q is not an IPv4 network", s)
	}
	mask := uint32(0xffffffff) << (32 - prefix.Bits())
	return netip.AddrFrom4([4]byte{byte(mask >> 24), byte(mask >> 16), byte(mask >> 8), byte(mask)}).String(), nil
}
