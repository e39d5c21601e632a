package artifacts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"skerry/edge/store"
	"skerry/fleet"
	"skerry/internal/redact"
)

// cloneGit fetches one commit with the program git, and stores its files as a tar.
func (f *Fetcher) cloneGit(ctx context.Context, r *Request, d *store.Download) (err error) {
	if err := d.Restart(""); err != nil {
		return err
	}
	program, err := exec.LookPath("git")
	if err != nil {
		return fleet.Errorf(fleet.CodeUnavailable, "this edge has no program git").
			WithHint("install git, or offer the files as an archive over https")
	}
	dir, err := os.MkdirTemp("", "skerry-git-")
	if err != nil {
		return fmt.Errorf("make a folder for git: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	g := gitCommand{ctx: ctx, program: program, dir: filepath.Join(dir, "tree"), home: dir, insecure: r.Insecure}
	if len(r.Source.sshKey) > 0 {
		g.keyFile = filepath.Join(dir, "key")
		if err := os.WriteFile(g.keyFile, append(bytes.TrimSpace(r.Source.sshKey), '\n'), fs.FileMode(0o600)); err != nil {
			return fmt.Errorf("write the key for git: %w", err)
		}
	}
	if err := os.Mkdir(g.dir, 0o700); err != nil {
		return fmt.Errorf("make a folder for git: %w", err)
	}
	address, err := g.storeCredentials(r.Source.url)
	if err != nil {
		return err
	}
	if err := g.checkOut(address, r.Source.ref); err != nil {
		return err
	}
	return writeTree(ctx, g.dir, d)
}

// gitCommand runs git in a folder, without the git configuration of the agent's user.
type gitCommand struct {
	ctx                         context.Context
	program, dir, home, keyFile string
	insecure                    bool
}

// storeCredentials writes the user and the password of a repository's address into a file that git asks, and returns the address without them:
// each user of the machine can read command lines.
func (g *gitCommand) storeCredentials(u *url.URL) (address string, err error) {
	if u.User == nil || u.Scheme != "http" && u.Scheme != "https" {
		return u.String(), nil
	}
	password, _ := u.User.Password()
	stored := url.URL{Scheme: u.Scheme, Host: u.Host, User: url.UserPassword(u.User.Username(), password)}
	for name, text := range map[string]string{".git-credentials": stored.String(), ".gitconfig": "[credential]\n\thelper = store"} {
		if err := os.WriteFile(filepath.Join(g.home, name), []byte(text+"\n"), 0o600); err != nil {
			return "", fmt.Errorf("write the credentials for git: %w", err)
		}
	}
	anonymous := *u
	anonymous.User = nil
	return anonymous.String(), nil
}

// checkOut fetches a branch, a tag or a commit. It fetches a single commit if the server allows that.
func (g *gitCommand) checkOut(address, ref string) error {
	if err := g.runGit("init", "--quiet"); err != nil {
		return err
	}
	if ref == "" {
		ref = "HEAD"
	}
	target := "FETCH_HEAD"
	err := g.runGit("fetch", "--quiet", "--depth", "1", "--", address, ref)
	if err != nil && g.ctx.Err() == nil { // ref is an abbreviated commit, or the server refuses single commits
		full := g.runGit("fetch", "--quiet", "--tags", "--", address, "+refs/heads/*:refs/remotes/origin/*")
		if full != nil {
			return err
		}
		if target = ref; g.runGit("rev-parse", "--verify", "--quiet", ref+"^{commit}") != nil {
			return fleet.Errorf(fleet.CodeNotFound, "the repository has no %q", ref)
		}
	} else if err != nil {
		return err
	}
	if err := g.runGit("checkout", "--quiet", "--detach", target); err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(g.dir, ".gitmodules")); err != nil {
		return nil
	}
	return g.runGit("submodule", "--quiet", "update", "--init", "--recursive", "--depth", "1")
}

// runGit runs git. The error of a failed run holds git's output.
func (g *gitCommand) runGit(args ...string) error {
	cmd := exec.CommandContext(g.ctx, g.program, args...)
	var said boundedText
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = g.dir, &said, &said, 5*time.Second
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + g.home, "GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C",
		"GIT_ALLOW_PROTOCOL=file:git:http:https:ssh", "GIT_ASKPASS=true",
	}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"} {
		if v, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	if g.insecure {
		cmd.Env = append(cmd.Env, "GIT_SSL_NO_VERIFY=1")
	}
	ssh := "ssh -o BatchMode=yes -o StrictHostKeyChecking=accept-new -o UserKnownHostsFile=" + filepath.Join(g.home, "hosts")
	if g.keyFile != "" {
		ssh += " -o IdentitiesOnly=yes -i " + g.keyFile
	}
	cmd.Env = append(cmd.Env, "GIT_SSH_COMMAND="+ssh)
	if err := cmd.Run(); err != nil {
		if g.ctx.Err() != nil {
			return context.Cause(g.ctx)
		}
		return fmt.Errorf("git %s: %w: %s", args[0], err, redactAddresses(strings.TrimSpace(said.String()), args))
	}
	return nil
}

// redactAddresses returns the output of git without the users and the queries of the addresses among its arguments.
func redactAddresses(said string, args []string) string {
	for _, arg := range args {
		said = strings.ReplaceAll(said, arg, redact.Address(arg))
	}
	return said
}

// boundedText keeps the first bytes of a program's output.
type boundedText struct{ bytes.Buffer }

// Write implements io.Writer.
func (b *boundedText) Write(p []byte) (int, error) {
	if room := 2048 - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
