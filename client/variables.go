package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"skerry/api"
	"skerry/fleet"
)

// VariableConflict is the refusal of a change of a variable, with the variable as it is: it has another index than
// expected, or somebody else holds its lock.
type VariableConflict struct {
	Err      *Error
	Variable fleet.Variable
}

// Error returns the message and the hint.
func (c *VariableConflict) Error() string { return c.Err.Error() }

// Unwrap returns the hub's error.
func (c *VariableConflict) Unwrap() error { return c.Err }

// variablePath returns the escaped path of a variable's endpoint.
func variablePath(path string) string {
	return "/v1/var" + joinPath(strings.Split(strings.Trim(path, " /"), "/")...)
}

// Variables lists the variables of the namespace, without their items.
func (c *Client) Variables(ctx context.Context, l List) ([]fleet.VariableMeta, error) {
	return readList[fleet.VariableMeta](ctx, c, "/v1/vars", l)
}

// Variable reads a variable with its items.
func (c *Client) Variable(ctx context.Context, path string) (fleet.Variable, error) {
	return readAnswer[fleet.Variable](ctx, c, variablePath(path), nil)
}

// StoreVariable creates or replaces a variable, and returns it as it is then.
func (c *Client) StoreVariable(ctx context.Context, v fleet.Variable) (fleet.Variable, error) {
	return changeVariable[fleet.Variable](ctx, c, http.MethodPut, nil, v)
}

// CheckAndStoreVariable stores a variable if the stored one still has the ModifyIndex of v; 0: if there is none. Else
// the error is a *VariableConflict.
func (c *Client) CheckAndStoreVariable(ctx context.Context, v fleet.Variable) (fleet.Variable, error) {
	return changeVariable[fleet.Variable](ctx, c, http.MethodPut, checkAndSet(v.ModifyIndex), v)
}

func checkAndSet(index fleet.Index) url.Values {
	return url.Values{"cas": {strconv.FormatUint(uint64(index), 10)}}
}

// DeleteVariable deletes a variable, if there is one.
func (c *Client) DeleteVariable(ctx context.Context, path string) error {
	_, err := changeVariable[api.IndexAnswer](ctx, c, http.MethodDelete, nil, fleet.Variable{VariableMeta: fleet.VariableMeta{Path: path}})
	return err
}

// CheckAndDeleteVariable deletes a variable if it still has that ModifyIndex. Else the error is a *VariableConflict.
func (c *Client) CheckAndDeleteVariable(ctx context.Context, path string, index fleet.Index) error {
	_, err := changeVariable[api.IndexAnswer](ctx, c, http.MethodDelete, checkAndSet(index), fleet.Variable{VariableMeta: fleet.VariableMeta{Path: path}})
	return err
}

// LockVariable acquires the lock of a variable, which is created if there is none, with the items, TTL and delay of v.
// The answer has the lock's ID. If the variable is locked, the error is a *VariableConflict.
func (c *Client) LockVariable(ctx context.Context, v fleet.Variable) (fleet.Variable, error) {
	return changeVariable[fleet.Variable](ctx, c, http.MethodPut, url.Values{"lock-acquire": {"true"}}, v)
}

// RenewVariableLock starts the TTL of the lock of v again. If the lock is lost, the error is a *VariableConflict.
func (c *Client) RenewVariableLock(ctx context.Context, v fleet.Variable) error {
	_, err := changeVariable[fleet.VariableMeta](ctx, c, http.MethodPut, url.Values{"lock-renew": {"true"}}, v)
	return err
}

// UnlockVariable releases the lock of v. If the lock is lost, the error is a *VariableConflict.
func (c *Client) UnlockVariable(ctx context.Context, v fleet.Variable) error {
	_, err := changeVariable[fleet.Variable](ctx, c, http.MethodPut, url.Values{"lock-release": {"true"}}, v)
	return err
}

// changeVariable is writeRequest for the endpoint of a variable. It returns a *VariableConflict for a conflict.
func changeVariable[T any](ctx context.Context, c *Client, method string, q url.Values, v fleet.Variable) (T, error) {
	var body any
	if method != http.MethodDelete {
		body = v
	}
	answer, err := writeRequest[T](ctx, c, method, variablePath(v.Path), q, body)
	var e *Error
	if !errors.As(err, &e) || e.object == nil {
		return answer, err
	}
	conflict := &VariableConflict{Err: e}
	if json.Unmarshal(e.object, &conflict.Variable) != nil {
		return answer, err
	}
	return answer, conflict
}
