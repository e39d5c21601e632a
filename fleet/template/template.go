package template

import (
	"context"
	"errors"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
	"time"

	"skerry/fleet"
)

const (
	// MaxBytes bounds the text of a template, what it renders, and each value in between.
	MaxBytes = 4 << 20
	// maxSteps bounds turns of loops and calls of nested templates.
	maxSteps = 1 << 17
)

// ErrSource is in the chain of an error of Render whose cause is a source that has no answer now.
var ErrSource = errors.New("a source of the template has no answer")

// Text is a template with its delimiters.
type Text struct {
	Name        string // in errors
	Text        string
	Left, Right string // "": {{ and }}
	// MissingKey makes a key that a map does not have an error.
	MissingKey bool
	// Secret says that the text is a secret, as if the template had read one before it begins.
	Secret bool
}

// Service is an instance of a service, as nomadService returns it.
type Service struct {
	ID, Name, Namespace, Datacenter, Node, JobID, AllocID string
	Address                                               string
	Port                                                  int
	Tags                                                  Tags
}

// Tags are the tags of a service.
type Tags []string

// Contains reports whether a tag is among them.
func (t Tags) Contains(tag string) bool { return slices.Contains(t, tag) }

// ServiceName is a service, as nomadServices returns it.
type ServiceName struct {
	Name string
	Tags Tags
}

// Sources are what a template can read. An error that is not a fleet.CodeInvalid means that there is no answer now.
type Sources struct {
	Env func(name string) (string, bool)
	// SecretEnv reports whether a variable of Env is a secret. nil: none is.
	SecretEnv func(name string) bool
	// File returns the content of a file, and whether that is a secret.
	File     func(path string) (text string, secret bool, err error)
	Services func(name string) ([]Service, error) // "": all
	// Addresses returns the addresses of the machine and the functions of sockaddr that choose among them.
	Addresses func() (all any, functions map[string]any, err error)
	Now       func() time.Time
	// Variable returns the items of one of VariablePaths, which are the variables that the task may read; ok is false
	// if there is none.
	Variable      func(path string) (items map[string]string, ok bool)
	VariablePaths []string
	// Secret returns what Vault has at a path for the task, or lists the path. nil: the task has no Vault.
	Secret func(path string, list bool) (Secret, error)
	// Pairs returns what Consul has at a key, or below one, for the task. nil: the task does not log in to Consul.
	Pairs func(q KeyQuery) ([]Pair, error)
}

// Check reports what is wrong with a template, with its line: a *fleet.Error with fleet.CodeInvalid, or
// fleet.CodeUnsupported for a function that does not work here.
func Check(t Text) error {
	r := new(renderer)
	_, err := parseText(t, r, r.functionMap())
	return err
}

// ReadsVault reports whether a template calls a function that reads from Vault. It is false for one that does not parse.
func ReadsVault(t Text) bool {
	r := new(renderer)
	_, err := parseText(t, r, r.functionMap())
	return err == nil && r.callsVault
}

// ReadsConsul reports whether a template calls a function that reads from Consul. It is false for one that does not parse.
func ReadsConsul(t Text) bool {
	r := new(renderer)
	_, err := parseText(t, r, r.functionMap())
	return err == nil && r.callsConsul
}

// Rendered is the result of Render.
type Rendered struct {
	Text string
	// Reads says that it comes from files, services or variables, and may change.
	Reads bool
	// Secret says that it read the items of a variable, a secret of Vault or a file with a secret, or that its text is one.
	Secret bool
}

// Render renders a template. It ends with ctx, or when it has done too many steps.
func Render(ctx context.Context, t Text, s Sources) (Rendered, error) {
	r := &renderer{ctx: ctx, sources: s, secret: t.Secret}
	r.scratch.r = r
	parsed, err := parseText(t, r, r.functionMap())
	if err != nil {
		return Rendered{}, r.withoutSecrets(err)
	}
	r.root = parsed
	if err := parsed.Execute(&r.out, nil); err != nil {
		return Rendered{}, r.withoutSecrets(trimError(err))
	}
	return Rendered{Text: r.out.String(), Reads: r.reads, Secret: r.secret}, nil
}

// renderer is one rendering.
type renderer struct {
	ctx     context.Context
	sources Sources
	root    *template.Template
	out     output
	scratch Scratch

	steps    int
	depth    int
	compared int
	reads    bool
	secret   bool // it read the items of a variable, or a secret, or its text is one

	callsVault  bool // it calls a function that reads from Vault
	callsConsul bool // the same of Consul
}

// parseText parses a template, refuses functions that do not work, and makes every loop count its turns.
func parseText(t Text, r *renderer, functions template.FuncMap) (*template.Template, error) {
	if len(t.Text) > MaxBytes {
		return nil, fleet.Errorf(fleet.CodeInvalid, "the template has %d MiB: at most %d MiB are rendered", len(t.Text)>>20, MaxBytes>>20)
	}
	missing := "missingkey=zero"
	if t.MissingKey {
		missing = "missingkey=error"
	}
	name := t.Name
	if name == "" {
		name = "template"
	}
	functions[stepFunction] = r.countStep
	parsed, err := template.New(name).Delims(t.Left, t.Right).Option(missing).Funcs(functions).Parse(t.Text)
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "%w", trimError(err)).WithHint("docs/templates.md lists the functions")
	}
	check, err := template.New("").Funcs(template.FuncMap{stepFunction: r.countStep}).Parse("{{" + stepFunction + "}}")
	if err != nil {
		panic("template: its own function does not parse: " + err.Error())
	}
	step := check.Root.Nodes[0]
	for _, each := range parsed.Templates() {
		if each.Tree == nil || each.Root == nil {
			continue
		}
		if err := r.walkNodes(each.Tree, each.Root, step); err != nil {
			return nil, err
		}
		each.Root.Nodes = append([]parse.Node{step}, each.Root.Nodes...)
	}
	return parsed, nil
}

// stepFunction is the name of the function that loops call.
const stepFunction = "countStep__"

// countStep is called in each turn of a loop and at the begin of each nested template.
func (r *renderer) countStep() (string, error) {
	if r.steps++; r.steps > maxSteps {
		return "", fleet.Errorf(fleet.CodeInvalid, "the template does more than %d steps", maxSteps).WithHint("does a loop in it end?")
	}
	if r.ctx != nil && r.steps%64 == 0 && r.ctx.Err() != nil {
		return "", context.Cause(r.ctx)
	}
	return "", nil
}

// walkNodes puts a step into each loop, and returns an error for a function that does not work here.
func (r *renderer) walkNodes(tree *parse.Tree, node parse.Node, step parse.Node) error {
	switch n := node.(type) {
	case *parse.ListNode:
		if n == nil {
			return nil
		}
		for _, child := range n.Nodes {
			if err := r.walkNodes(tree, child, step); err != nil {
				return err
			}
		}
	case *parse.RangeNode:
		if err := r.walkBranch(tree, &n.BranchNode, step); err != nil {
			return err
		}
		n.List.Nodes = append([]parse.Node{step}, n.List.Nodes...)
	case *parse.IfNode:
		return r.walkBranch(tree, &n.BranchNode, step)
	case *parse.WithNode:
		return r.walkBranch(tree, &n.BranchNode, step)
	case *parse.ActionNode:
		return r.walkPipe(tree, n.Pipe)
	case *parse.TemplateNode:
		return r.walkPipe(tree, n.Pipe)
	}
	return nil
}

func (r *renderer) walkBranch(tree *parse.Tree, n *parse.BranchNode, step parse.Node) error {
	for _, err := range []error{r.walkPipe(tree, n.Pipe), r.walkNodes(tree, n.List, step), r.walkNodes(tree, n.ElseList, step)} {
		if err != nil {
			return err
		}
	}
	return nil
}

// walkPipe looks at the functions of a pipeline.
func (r *renderer) walkPipe(tree *parse.Tree, p *parse.PipeNode) error {
	if p == nil {
		return nil
	}
	for _, c := range p.Cmds {
		for _, arg := range c.Args {
			switch a := arg.(type) {
			case *parse.PipeNode:
				if err := r.walkPipe(tree, a); err != nil {
					return err
				}
			case *parse.ChainNode:
				if inner, ok := a.Node.(*parse.PipeNode); ok {
					if err := r.walkPipe(tree, inner); err != nil {
						return err
					}
				}
			case *parse.IdentifierNode:
				r.callsConsul = r.callsConsul || slices.Contains([]string{"key", "keyExists", "keyOrDefault", "ls", "tree"}, a.Ident)
				r.callsVault = r.callsVault || a.Ident == "secret" || a.Ident == "secrets"
				if why, ok := refused[a.Ident]; ok {
					at, _ := tree.ErrorContext(a)
					return fleet.Errorf(fleet.CodeUnsupported, "%s: the function %s is not supported: %s", at, a.Ident, why.reason).WithHint("%s", why.hint)
				}
			}
		}
	}
	return nil
}

// trimmed is an error of text/template without the words that it begins with.
type trimmed struct{ error }

// Error implements error.
func (t trimmed) Error() string { return strings.TrimPrefix(t.error.Error(), "template: ") }

// Unwrap returns the error itself.
func (t trimmed) Unwrap() error { return t.error }

// trimError returns an error of text/template without what everybody knows.
func trimError(err error) error { return trimmed{err} }

// output collects what a template renders.
type output struct{ strings.Builder }

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	if o.Len()+len(p) > MaxBytes {
		return 0, errTooLarge
	}
	return o.Builder.Write(p)
}

// errTooLarge is the error of a text that is too long.
var errTooLarge = fleet.Errorf(fleet.CodeInvalid, "it renders more than %d MiB", MaxBytes>>20).WithHint("does a loop in it end?")
