package docker

import (
	"strings"
	"testing"
)

func TestOutOfMemoryRecord(t *testing.T) {
	id := strings.Repeat("5a", 32)
	kill := func(kind, group string) string {
		return "4,1066,8465076625,-;oom-kill:constraint=" + kind + ",nodemask=(null),cpuset=" + id + ",mems_allowed=0,oom_memcg=" + group +
			",task_memcg=/docker/" + id + ",task=sh,pid=18176,uid=0\n"
	}
	for text, want := range map[string]bool{
		kill("CONSTRAINT_MEMCG", "/docker/"+id):                            true,
		kill("CONSTRAINT_MEMCG", "/system.slice/docker-"+id+".scope"):      true,
		kill("CONSTRAINT_MEMCG", "/libpod_parent/libpod-"+id):              true,
		kill("CONSTRAINT_MEMCG", "/docker"):                                false, // all containers together
		kill("CONSTRAINT_NONE", "/docker/"+id):                             false, // the machine
		"6,1,1,-;docker0: port 1(veth" + id + ") entered disabled state\n": false,
		"": false,
	} {
		if got := isOutOfMemoryRecord([]byte(text), id); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}

// Every record contains an empty id.
func TestNoContainerIsOutOfMemory(t *testing.T) {
	if wasOutOfMemory("") || wasOutOfMemory(strings.Repeat("0", 64)) {
		t.Error("the kernel's log is about a container that never was")
	}
}
