package command

import (
	"cmp"
	"context"
	"slices"

	"github.com/spf13/cobra"

	"skerry/client"
	"skerry/cmd/console"
	"skerry/fleet"
)

// Show makes a command that reads something and shows it: as JSON, or written for people.
func Show[T any](s *Session, read func(*Call) (T, error), write func(*console.Output, T)) func(*cobra.Command, []string) error {
	return s.Run(func(c *Call) error {
		v, err := read(c)
		if err == nil {
			c.Out.Show(v, func() { write(c.Out, v) })
		}
		return err
	})
}

// Do makes a command that has a hub do something. The line that it returns says for people that it is done.
func Do(s *Session, do func(*Call) (done string, err error)) func(*cobra.Command, []string) error {
	return s.Run(func(c *Call) error {
		done, err := do(c)
		if err == nil {
			c.Out.Line("%s", done)
		}
		return err
	})
}

// All reads something that takes no argument.
func All[T any](read func(*client.Client, context.Context) (T, error)) func(*Call) (T, error) {
	return func(c *Call) (T, error) { return read(c.Hub, c.Context()) }
}

// Listed reads the items of a list that the query asks for.
func Listed[T any](read func(*client.Client, context.Context, client.List) ([]T, error), query *client.List) func(*Call) ([]T, error) {
	return func(c *Call) ([]T, error) { return read(c.Hub, c.Context(), *query) }
}

// Named reads the object that the first argument names.
func Named[T any](read func(*client.Client, context.Context, string) (T, error)) func(*Call) (T, error) {
	return func(c *Call) (T, error) { return read(c.Hub, c.Context(), c.Args[0]) }
}

// OfAlloc reads something of the allocation that the first argument names.
func OfAlloc[T any](read func(*client.Client, context.Context, fleet.AllocID) (T, error)) func(*Call) (T, error) {
	return func(c *Call) (v T, err error) {
		alloc, err := c.FindAlloc(c.Args[0])
		if err == nil {
			v, err = read(c.Hub, c.Context(), alloc.ID)
		}
		return v, err
	}
}

// OfJob reads something of the job that the first argument names.
func OfJob[T any](read func(*client.Client, context.Context, fleet.JobID) (T, error)) func(*Call) (T, error) {
	return func(c *Call) (v T, err error) {
		job, err := c.FindJob(c.Args[0])
		if err == nil {
			v, err = read(c.Hub, c.Context(), job.ID)
		}
		return v, err
	}
}

// Newest reads a list, and orders it with NewestFirst.
func Newest[T any, K cmp.Ordered](read func(*Call) ([]T, error), made func(T) K) func(*Call) ([]T, error) {
	return func(c *Call) ([]T, error) {
		list, err := read(c)
		NewestFirst(list, made)
		return list, err
	}
}

// NewestFirst orders things by when they were made. All lists of things that come and go are
// shown like this; the API keeps Nomad's orders.
func NewestFirst[T any, K cmp.Ordered](list []T, made func(T) K) {
	slices.SortStableFunc(list, func(a, b T) int { return cmp.Compare(made(b), made(a)) })
}
