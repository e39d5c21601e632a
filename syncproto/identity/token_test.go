package identity_test

import (
	"strings"
	"testing"

	"skerry/fleet"
	"skerry/syncproto/identity"
)

func TestTokenRoundTrip(t *testing.T) {
	ca := []byte("a certificate")
	made := identity.NewToken(ca)
	read, err := identity.ParseToken("\n " + made.String() + "\n")
	if err != nil {
		t.Fatal(err)
	}
	if read != made {
		t.Fatalf("read %v, made %v", read, made)
	}
	if !read.Names(ca) || read.Names([]byte("another")) {
		t.Fatal("the CA hash does not tell one CA from another")
	}
	if !identity.MatchesSecret(identity.HashSecret(made.Secret), read.Secret) {
		t.Fatal("the secret does not match its hash")
	}
	if identity.NewToken(ca) == made {
		t.Fatal("two tokens are the same")
	}
}

func TestTokenDoesNotLogItsSecret(t *testing.T) {
	made := identity.NewToken([]byte("ca"))
	if got := made.LogValue().String(); strings.Contains(got, made.Secret) || !strings.Contains(got, made.ID) {
		t.Fatalf("log value %q", got)
	}
}

func TestParseTokenRefuses(t *testing.T) {
	good := identity.NewToken([]byte("ca")).String()
	parts := strings.Split(good, ".")
	tamper := func(i int) string {
		p := append([]string(nil), parts...)
		b := []byte(p[i])
		if b[0] == 'a' {
			b[0] = 'b'
		} else {
			b[0] = 'a'
		}
		p[i] = string(b)
		return strings.Join(p, ".")
	}
	for name, in := range map[string]string{
		"empty":           "",
		"another prefix":  "skr2" + good[4:],
		"three parts":     strings.Join(parts[:3], "."),
		"five parts":      good + ".x",
		"cut off":         good[:len(good)-3],
		"CA hash changed": tamper(1),
		"id changed":      tamper(2),
		"secret changed":  tamper(3),
		"upper-case id":   strings.Join([]string{parts[0], parts[1], strings.ToUpper(parts[2]) + "A", parts[3]}, "."),
		"not base64":      strings.Join([]string{parts[0], "!" + parts[1][1:], parts[2], parts[3]}, "."),
		"far too long":    good + strings.Repeat("x", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := identity.ParseToken(in)
			e := fleet.AsError(err)
			if e == nil || e.Code != fleet.CodeTokenBad || e.Hint == "" {
				t.Fatalf("got %+v, want %s with a hint", e, fleet.CodeTokenBad)
			}
		})
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add(identity.NewToken([]byte("ca")).String())
	f.Add("skr1...")
	f.Add("")
	f.Add("skr1." + strings.Repeat("A", 43) + ".abcdefgh." + strings.Repeat("A", 48))
	f.Fuzz(func(t *testing.T, s string) {
		token, err := identity.ParseToken(s)
		if err != nil {
			if fleet.CodeOf(err) != fleet.CodeTokenBad {
				t.Fatalf("an error of another code: %v", err)
			}
			return
		}
		if token.String() != strings.TrimSpace(s) {
			t.Fatalf("%q is read as %q", s, token)
		}
	})
}
