package supervised

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"skerry/drivers"
	"skerry/drivers/cgroup"
	"skerry/fleet"
)

// Process is a process to run. Its supervisor reads it from the state folder, so that it holds only data.
type Process struct {
	Path string   `json:"path"` // of the program, absolute
	Argv []string `json:"argv"` // with the program's name first
	Env  []string `json:"env"`  // NAME=value
	Dir  string   `json:"dir"`  // working directory, absolute
	// User runs the process; nil: the agent's.
	User *User `json:"user,omitempty"`
	// Namespace is the path of a network namespace that the process joins; "": the supervisor's.
	Namespace string `json:"namespace,omitempty"`
	// Cgroup holds the process and all that it starts; nil: none.
	Cgroup *Cgroup `json:"cgroup,omitempty"`
	// Container runs the process in a container; nil: no container. The bundle then defines the program, user and
	// namespaces; of the fields above, only User and Cgroup count.
	Container *Container `json:"container,omitempty"`
}

// User is the user and the groups of a process.
type User struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
	Home   string   `json:"-"`
	Name   string   `json:"-"`
}

// Cgroup is the cgroup of a task. The supervisor makes it with its limits, except for a container, whose cgroup the
// runtime makes.
type Cgroup struct {
	cgroup.Group
	Limits cgroup.Limits `json:"limits"`
}

// Container is a container of an OCI runtime.
type Container struct {
	Runtime string `json:"runtime"` // path of the runtime's program, such as crun or runc
	Root    string `json:"root"`    // folder in which the runtime keeps its state
	Bundle  string `json:"bundle"`  // folder with config.json
	ID      string `json:"id"`
	// PIDNamespace is the path of a symbolic link that the supervisor makes to the PID namespace of the container,
	// as the bundle names it; "": the container has the machine's PIDs. Its first process is not the task, so
	// that signals have their usual effect on the task.
	PIDNamespace string `json:"pid_namespace,omitempty"`
	// Hidden is a mount point that the runtime does not see: a second hierarchy of cgroups, which crun refuses; "": none.
	Hidden string `json:"hidden,omitempty"`
	// Layers are mounted as the root of the container, which the bundle names; nil: the bundle's root is a folder.
	Layers *Layers `json:"layers,omitempty"`
}

// Layers are the folders of an overlay file system. It is mounted in a mount namespace that ends with the container, so
// that a supervisor that is killed leaves no mount.
type Layers struct {
	Lower string `json:"lower"` // read-only
	Upper string `json:"upper"` // for what the task writes; "": the root is read-only
	Work  string `json:"work"`
	Root  string `json:"root"` // where it is mounted
}

// validateContainer returns an error for a container that a supervisor cannot run.
func (c *Container) validateContainer() error {
	if c == nil {
		return nil
	}
	if !filepath.IsAbs(c.Runtime) || !filepath.IsAbs(c.Root) || !filepath.IsAbs(c.Bundle) || c.ID == "" {
		return errors.New("a field of the container is missing")
	}
	if l := c.Layers; l != nil && (!filepath.IsAbs(l.Lower) || !filepath.IsAbs(l.Root) || (l.Upper == "") != (l.Work == "")) {
		return errors.New("a folder of the container's layers is missing")
	}
	return nil
}

// FindUser returns a user of the machine, by name or number, with its groups.
func FindUser(name string) (*User, error) {
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.LookupId(name); err != nil {
			return nil, fleet.Errorf(fleet.CodeInvalid, "find user %q: this machine has no such user", name).
				WithHint("name a user of the edge's /etc/passwd")
		}
	}
	out := &User{Home: u.HomeDir, Name: u.Username}
	if out.UID, err = parseID(u.Uid); err != nil {
		return nil, fmt.Errorf("find user %q: %w", name, err)
	}
	if out.GID, err = parseID(u.Gid); err != nil {
		return nil, fmt.Errorf("find user %q: %w", name, err)
	}
	groups, err := u.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("find groups of user %q: %w", name, err)
	}
	for _, group := range groups {
		gid, err := parseID(group)
		if err != nil {
			return nil, fmt.Errorf("find groups of user %q: %w", name, err)
		}
		out.Groups = append(out.Groups, gid)
	}
	return out, nil
}

// parseID parses the number of a user or group.
func parseID(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("parse id: %w", err)
	}
	return uint32(n), nil
}

// LimitsOf returns the limits of a task's cgroup: cpu and memory, memory_max and cores as in Nomad.
func LimitsOf(cfg drivers.TaskConfig) cgroup.Limits {
	r := cfg.Resources
	l := cgroup.Limits{CPUShares: r.CPU, Memory: int64(r.MemoryMB) << 20}
	if r.Cores > 0 {
		l.CPUs = cfg.Env[coresVariable]
	}
	if r.MemoryMaxMB != 0 {
		l.Memory, l.SoftMemory = max(int64(r.MemoryMaxMB)<<20, 0), l.Memory // -1: no limit
	}
	return l
}

// coresVariable is the environment variable with the task's reserved cores, such as 0-1,3.
const coresVariable = "NOMAD_CPU_CORES"

const (
	// searchable lets others pass through a folder without listing it.
	searchable = 0o001
	// searchableByAll does so for the group too.
	searchableByAll = 0o011
	// agentFolders is the number of folders above a task's folder that belong to the agent: the allocation's, the one
	// of all allocations, and the data directory.
	agentFolders = 3
)

// letPass lets all users pass through the agent's folders above a task's folder. Folders above these belong to the
// operator: if one is closed to others, the error names it.
func letPass(dir string) error {
	for level := 1; dir != filepath.Dir(dir); level++ {
		dir = filepath.Dir(dir)
		info, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("open folder to users: %w", err)
		}
		switch {
		case info.Mode().Perm()&searchable == searchable:
		case level > agentFolders:
			return fleet.Errorf(fleet.CodeInvalid, "run as another user: the folder %s above the data directory is closed to others", dir).
				WithHint("chmod o+x %s, or move the data directory", dir)
		default:
			if err := os.Chmod(dir, info.Mode().Perm()|searchableByAll); err != nil {
				return fmt.Errorf("open folder to users: %w", err)
			}
		}
	}
	return nil
}
