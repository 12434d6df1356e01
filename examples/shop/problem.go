package shop

import (
	"fmt"
	"net/http"
)

// Problem is why a request was not carried out, as the client reads it. It holds no
// values of the order: answers end up in logs.
type Problem struct {
	Status  int      `json:"-"`
	Code    string   `json:"code"`
	Message string   `json:"message"`
	Path    string   `json:"path,omitempty"`    // JSON Pointer to what is wrong in the order
	Differs []string `json:"differs,omitempty"` // JSON Pointers to what differs from the order placed before
}

func (p *Problem) Error() string {
	if p.Path != "" {
		return fmt.Sprintf("shop: %s at %s: %s", p.Code, p.Path, p.Message)
	}
	return fmt.Sprintf("shop: %s: %s", p.Code, p.Message)
}

// invalid says what is wrong at a place of the order; the same order will be refused
// again.
func invalid(path, format string, args ...any) *Problem {
	return &Problem{Status: http.StatusUnprocessableEntity, Code: "order_invalid", Path: path, Message: fmt.Sprintf(format, args...)}
}
