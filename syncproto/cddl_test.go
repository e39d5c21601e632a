package syncproto

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"skerry/fleet"
)

// In the package itself, for the frozen types that it does not export.

// keysOf lists a type's keys as the description names them: "4", or "? 4" where
// it may be left out.
func keysOf(t reflect.Type) (keys []string) {
	for i := range t.NumField() {
		if !t.Field(i).IsExported() { // it is not encoded
			continue
		}
		number, options, _ := strings.Cut(t.Field(i).Tag.Get("cbor"), ",")
		if strings.Contains(options, "omitempty") {
			number = "? " + number
		}
		keys = append(keys, number)
	}
	return keys
}

// The description beside the code names every key of every type, and whether it
// may be left out.
func TestCDDLNamesEveryKey(t *testing.T) {
	text, err := os.ReadFile("syncproto.cddl")
	if err != nil {
		t.Fatal(err)
	}
	described := map[string][]string{}
	number := map[string]string{}
	rule := regexp.MustCompile(`(?ms)^(\w+) = \{ *(?:; (\d+), [^\n]*)?[^\n]*\n(.*?)^\}`)
	key := regexp.MustCompile(`(?m)^  (\? )?(\d+): `)
	for _, m := range rule.FindAllStringSubmatch(string(text), -1) {
		number[m[1]] = m[2]
		for _, k := range key.FindAllStringSubmatch(m[3], -1) {
			described[m[1]] = append(described[m[1]], k[1]+k[2])
		}
	}
	types := map[string]reflect.Type{
		"Heartbeat": reflect.TypeFor[wireHeartbeat](), "Node": reflect.TypeFor[wireNode](),
		"Amounts": reflect.TypeFor[wireResources](), "Driver": reflect.TypeFor[wireDriver](), "Device": reflect.TypeFor[wireDevice](),
		"DesiredAlloc": reflect.TypeFor[wireDesiredAlloc](), "DesiredStop": reflect.TypeFor[DesiredStop](), "Window": reflect.TypeFor[DesiredWindow](), "Body": reflect.TypeFor[Body](),
		"Error": reflect.TypeFor[fleet.Error](), "HostNetwork": reflect.TypeFor[wireHostNetwork](), "HostVolume": reflect.TypeFor[wireHostVolume](),
		"Allotment": reflect.TypeFor[wireAssignedResources](), "Port": reflect.TypeFor[wirePort](),
		"Given": reflect.TypeFor[wireTaskResources](), "GivenDevice": reflect.TypeFor[wireAssignedDevice](),
		"Row": reflect.TypeFor[row](), "RowState": reflect.TypeFor[rowState](), "RowEvent": reflect.TypeFor[rowEvent](), "RowHold": reflect.TypeFor[rowHold](),
		"RowVolume": reflect.TypeFor[rowVolume](), "DesiredVolume": reflect.TypeFor[DesiredVolume](),
		"RowPrefetch": reflect.TypeFor[rowPrefetch](), "DesiredPrefetch": reflect.TypeFor[DesiredPrefetch](),
		"DeliveredVariable": reflect.TypeFor[DeliveredVariable](), "DeliveredIdentity": reflect.TypeFor[DeliveredIdentity](), "DeliveredSiteCode": reflect.TypeFor[DeliveredSiteCode](), "DeliveredService": reflect.TypeFor[DeliveredService](),
		"RowNetwork": reflect.TypeFor[rowNetwork](),
		"RowSite":    reflect.TypeFor[rowSite](),
	}
	for ft, decode := range decoders {
		m, err := decode([]byte{0xa0})
		if err != nil {
			t.Fatalf("%s: %v", ft, err)
		}
		if _, frozen := types[ft.String()]; !frozen {
			types[ft.String()] = reflect.TypeOf(m)
		}
		if want := fmt.Sprint(uint8(ft)); number[ft.String()] != want {
			t.Errorf("%s is described as frame %q, it is %s", ft, number[ft.String()], want)
		}
	}
	for name, typ := range types {
		if want := keysOf(typ); !slices.Equal(described[name], want) {
			t.Errorf("%s is described with keys %q, the code has %q", name, described[name], want)
		}
		delete(described, name)
	}
	for name := range described {
		t.Errorf("%s is described and not in the code", name)
	}
}

func TestWordsAreFrozen(t *testing.T) {
	if len(words) != 32 || words[1] != "alloc" || words[11] != "running" || words[29] != "Reconnected" || words[30] != "volume" || words[31] != "prefetch" {
		t.Errorf("words changed: %q; only append, and raise the count here", words)
	}
	if len(wordNumbers) != len(words) {
		t.Error("a word is there twice")
	}
}
