package engine

import (
	"errors"
	"net"
	"net/http"

	"skerry/chaos/check"
	"skerry/client"
)

// OutcomeOf returns the outcome (check.OutcomeOK, …) that a client can conclude from the error of a call. It is
// unknown where the call may have had an effect.
func OutcomeOf(err error) string {
	var dial *net.OpError
	switch status := client.StatusOf(err); {
	case err == nil:
		return check.OutcomeOK
	case status == http.StatusNotFound:
		return check.OutcomeNotFound
	case status == http.StatusConflict:
		return check.OutcomeConflict
	case status == http.StatusBadRequest || status == http.StatusForbidden:
		return check.OutcomeRefused
	case errors.As(err, &dial) && dial.Op == "dial":
		return check.OutcomeRefused
	}
	return check.OutcomeUnknown
}
