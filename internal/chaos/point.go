package chaos

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/outbox-worker/outbox-worker/dispatch"
)

// points are those of dispatch.Hooks.
var points = []string{"before_claim", "after_claim", "before_write", "after_call", "before_settle", "after_settle", "before_resend"}

// What a worker can be told to do to itself, and what it says before it falls asleep.
const (
	orderKill    = "kill"
	orderPause   = "pause"
	orderNothing = "nothing"
	asleep       = "asleep"
)

// fallAsleep is how long a stop signal to oneself may take to be heard by all threads.
const fallAsleep = 50 * time.Millisecond

// Hooks are those of a worker that kills or pauses itself at a point when it is told to:
// each line of orders is "kill POINT" or "pause POINT", and the next attempt that comes by
// there carries it out. Before it falls asleep it says so to said.
func Hooks(orders io.Reader, said io.Writer) dispatch.Hooks {
	var armed atomic.Pointer[string]
	go func() {
		lines := bufio.NewScanner(orders)
		for lines.Scan() {
			line := lines.Text()
			armed.Store(&line)
		}
	}()
	at := func(point string) {
		order := armed.Load()
		if order == nil {
			return
		}
		what, where, _ := strings.Cut(*order, " ")
		if where != point || !armed.CompareAndSwap(order, nil) {
			return
		}
		if what == orderKill {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		_, _ = fmt.Fprintln(said, asleep)
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		time.Sleep(fallAsleep)
	}
	hook := func(point string) func(string) { return func(string) { at(point) } }
	return dispatch.Hooks{
		BeforeClaim: func([]string) { at("before_claim") },
		AfterClaim:  hook("after_claim"), BeforeWrite: hook("before_write"), AfterCall: hook("after_call"),
		BeforeSettle: hook("before_settle"), AfterSettle: hook("after_settle"), BeforeResend: hook("before_resend"),
	}
}
