package templates

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"skerry/edge/runner"
	"skerry/fleet"
)

// prepareSecrets reads the secrets of a task and sets their items. A secret that cannot be read now has the items of the last
// start.
func (h *Hook) prepareSecrets(ctx context.Context, p *runner.Preparation) error {
	if len(p.Task.Secrets) == 0 {
		return nil
	}
	if slices.ContainsFunc(p.Task.Secrets, func(s fleet.Secret) bool { return s.Provider == fleet.SecretOfVault }) {
		_ = h.cfg.KeepValid(ctx, p) // reads again what is due: a restart delay may be longer than a lease. What cannot be read stays
	}
	all := map[string]string{}
	for i := range p.Task.Secrets {
		b := secretBlock(p, i)
		last, known, err := h.renderOrReuse(ctx, b)
		if err != nil {
			return err
		}
		if err := addItems(all, p.Task.Secrets[i].Name, last.Text); err != nil {
			return fmt.Errorf("read %s: %w", b.name, err)
		}
		if err := h.recordRendering(b, last, known); err != nil {
			return err
		}
	}
	if err := p.SetSecrets(all); err != nil {
		return fmt.Errorf("set the secrets of task %s: %w", p.Task.Name, err)
	}
	return nil
}

// restoreSecrets sets the secrets again that prepareSecrets had set, which another release may have done with another template.
func (h *Hook) restoreSecrets(p *runner.Preparation) {
	all := map[string]string{}
	for i := range p.Task.Secrets {
		if r, known := h.readNewest(secretBlock(p, i)); known {
			_ = addItems(all, p.Task.Secrets[i].Name, r.Text) // it was added before
		}
	}
	if len(all) > 0 {
		_ = p.SetSecrets(all)
	}
}

// secretBlock returns the template that reads a secret block of a task. Its text is the secret's items as JSON.
func secretBlock(p *runner.Preparation, i int) block {
	s := &p.Task.Secrets[i]
	read, items := "nomadVar", "."
	if s.Provider == fleet.SecretOfVault {
		read, items = "secret", ".Data"
		if s.Config["engine"] == fleet.SecretEngineV2 {
			items = ".Data.data"
		}
	}
	t := &fleet.Template{EmbeddedTmpl: fmt.Sprintf("{{ with %s %q }}{{ toJSON %s }}{{ end }}", read, p.Replace(s.Path), items)}
	return block{p, t, secretName(s), secretFile(s), "secret " + s.Name}
}

// addItems adds the items of a secret by reference: secret.NAME.KEY. Its errors have nothing of the secret.
func addItems(all map[string]string, name, text string) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var items map[string]any
	if err := d.Decode(&items); err != nil || items == nil {
		return fleet.Errorf(fleet.CodeUnavailable, "it has no items").WithHint("check its path; in Vault also its engine: kv, or kv_v2 with the path MOUNT/data/NAME")
	}
	for key, v := range items {
		value, err := textOfItem(v)
		if err != nil {
			return fleet.Errorf(fleet.CodeUnavailable, "an item cannot be written as text")
		}
		all[fleet.SecretPrefix+name+"."+key] = value
	}
	return nil
}

// textOfItem returns the value of an item as text: lists and maps as JSON.
func textOfItem(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		return strconv.FormatBool(v), nil
	}
	text, err := json.Marshal(v)
	return string(text), err
}
