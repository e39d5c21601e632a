package variable

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skerry/client"
	"skerry/fleet"
)

// TestParseVariable reads what var init and var get write, and Nomad's files.
func TestParseVariable(t *testing.T) {
	v := fleet.Variable{
		VariableMeta: fleet.VariableMeta{Namespace: "ships", Path: "app/db", ModifyIndex: 9},
		Items:        fleet.VariableItems{"user": "a", "with space": "x\n\t${y} 100% %{z} \\ \"q\" ä"},
	}
	for name, tc := range map[string]struct {
		src, format string
		want        fleet.Variable
	}{
		"written HCL": {string(variableHCL(v)), "", v},
		"JSON":        {`{"Namespace": "ships", "Path": "app/db", "ModifyIndex": 9, "Items": {"user": "a", "with space": "x\n\t${y} 100% %{z} \\ \"q\" ä"}}`, "", v},
		"example":     {exampleHCL, "hcl", fleet.Variable{VariableMeta: fleet.VariableMeta{Path: "path/to/variable"}, Items: fleet.VariableItems{"user": "shop", "password": "change me"}}},
		"lock": {`path = "l"
lock {
  ttl = "30s"
  lock_delay = "20s"
}`, "", fleet.Variable{VariableMeta: fleet.VariableMeta{Path: "l", Lock: &fleet.VariableLock{TTL: 30 * time.Second, LockDelay: 20 * time.Second}}}},
	} {
		got, err := parseVariable("x", []byte(tc.src), tc.format)
		if err != nil || got.Namespace != tc.want.Namespace || got.Path != tc.want.Path || got.ModifyIndex != tc.want.ModifyIndex || !maps.Equal(got.Items, tc.want.Items) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if (got.Lock == nil) != (tc.want.Lock == nil) || got.Lock != nil && *got.Lock != *tc.want.Lock {
			t.Errorf("%s: lock %+v", name, got.Lock)
		}
	}
	for src, want := range map[string]string{
		`{"Pth": "x"}`:           "Pth",
		`path = 1 +`:             "x:1",
		`value = "x"`:            `"value" is not known`,
		`modify_index = "later"`: "not a whole number",
		`items { a = b }`:        "computed",
	} {
		if _, err := parseVariable("x", []byte(src), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", src, err, want)
		}
	}
}

func TestParseItem(t *testing.T) {
	read := func(name string) ([]byte, error) {
		if name != "file" {
			return nil, errors.New("no such file")
		}
		return []byte("content\n"), nil
	}
	for arg, want := range map[string]string{
		"k=v": "k: v", "k=": "k: ", "k=a=b": "k: a=b", "k=@file": "k: content\n", `k=\@x`: "k: @x", "=hidden": "error", "hidden": "error", "k=@none": "error",
	} {
		key, value, err := parseItem(arg, read)
		got := key + ": " + value
		if err != nil {
			got = "error"
		}
		if err != nil && arg != "k=@none" && strings.Contains(err.Error(), arg) {
			t.Errorf("%s: the error tells what may be a secret: %v", arg, err)
		}
		if got != want {
			t.Errorf("%s: %q, want %q (%v)", arg, got, want, err)
		}
	}
}

// TestKeepLock renews in time, bears failures until the TTL is over, and stops at once when the lock is lost.
func TestKeepLock(t *testing.T) {
	lost := &client.VariableConflict{Err: &client.Error{Err: fleet.Errorf(fleet.CodeConflict, "lost")}}
	down := errors.New("no hub answers")
	for name, tc := range map[string]struct {
		renew   func(n int) error
		lasts   time.Duration
		renewed int
		fails   bool
	}{
		"renewed":      {func(int) error { return nil }, 62 * time.Second, 12, false},
		"lost":         {func(int) error { return lost }, 5 * time.Second, 1, true},
		"unreachable":  {func(int) error { return down }, 15 * time.Second, 3, true},
		"a short time": {func(n int) error { return map[bool]error{true: down}[n%3 != 0] }, 62 * time.Second, 12, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 62*time.Second)
				defer cancel()
				began, n := time.Now(), 0
				err := keepLock(ctx, func(context.Context) error { n++; return tc.renew(n) }, 15*time.Second)
				if (err != nil) != tc.fails || time.Since(began) != tc.lasts || n != tc.renewed {
					t.Fatalf("%v after %s and %d renewals", err, time.Since(began), n)
				}
			})
		})
	}
}

// FuzzParseVariable: a variable that is read can be read again from HCL. HCL normalizes texts, so they may differ.
func FuzzParseVariable(f *testing.F) {
	f.Add(exampleHCL)
	f.Add(exampleJSON)
	f.Add("items = { \"a b\" = \"$${x}\" }")
	f.Fuzz(func(t *testing.T, src string) {
		v, err := parseVariable("x", []byte(src), "")
		if err != nil {
			return
		}
		if _, err := parseVariable("x", variableHCL(v), "hcl"); err != nil {
			t.Fatalf("%+v is written as HCL that is not read: %v", v, err)
		}
	})
}
