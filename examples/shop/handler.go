package shop

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/outbox"
)

const (
	// maxBody is the ledger's limit for a payload: canonical JSON is never longer than
	// what it was made from.
	maxBody = 64 << 10

	// requestTimeout bounds a request's work in the database. What it cuts off is
	// rolled back, or committed without an answer; the client posts again either way.
	requestTimeout = 5 * time.Second
)

// Handler serves the shop's API from db. Logs have order numbers and references, but
// neither names nor amounts. Safe for concurrent use.
func Handler(db *pgxpool.Pool, log *slog.Logger) http.Handler {
	h := handler{db, log}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", h.place)
	mux.HandleFunc("GET /orders/{id}", h.find)
	mux.HandleFunc("GET /healthz", h.health)
	mux.HandleFunc("/orders", h.allow("POST"))
	mux.HandleFunc("/orders/{id}", h.allow("GET"))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		h.refuse(w, r, &Problem{Status: http.StatusNotFound, Code: "not_found", Message: "There is /orders and /orders/{id}."})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		mux.ServeHTTP(w, r.WithContext(ctx))
	})
}

type handler struct {
	db  *pgxpool.Pool
	log *slog.Logger
}

// orderView is what a client sees of an order.
type orderView struct {
	Storefront string     `json:"storefront"`
	ID         string     `json:"order_id"`
	Total      string     `json:"total"`
	Repeated   bool       `json:"repeated,omitempty"`
	Charge     chargeView `json:"charge"`
	Order      *Order     `json:"order,omitempty"`
}

// chargeView is what a client sees of the charge; never the provider's whole answer.
type chargeView struct {
	Reference string    `json:"reference"`
	State     string    `json:"state"`
	ChargeID  string    `json:"charge_id,omitempty"` // the provider's
	Code      string    `json:"code,omitempty"`
	SettledAt time.Time `json:"settled_at,omitzero"`
}

func view(o Order, a outbox.Answer) orderView {
	state := string(a.State)
	if state == "" {
		state = string(a.Kind) // not_found: this ledger does not know the reference
	}
	return orderView{
		Storefront: o.Storefront, ID: o.ID, Total: money(o.Amount, o.Currency),
		Charge: chargeView{a.Reference, state, a.ProviderID, a.Code, a.SettledAt},
	}
}

func (h handler) place(w http.ResponseWriter, r *http.Request) {
	o, problem := readOrder(w, r)
	if problem != nil {
		h.refuse(w, r, problem)
		return
	}
	placed, err := Place(r.Context(), h.db, o, traceOf(r))
	if err != nil {
		h.fail(w, r, err)
		return
	}
	v := view(o, placed.Charge)
	v.Repeated = placed.Repeated
	h.log.InfoContext(r.Context(), "order", "storefront", o.Storefront, "order", o.ID,
		"answer", placed.Charge.Kind, "reference", placed.Charge.Reference)
	if placed.Repeated {
		h.write(w, http.StatusOK, v)
		return
	}
	w.Header().Set("Location", "/orders/"+url.PathEscape(o.ID)+"?storefront="+url.QueryEscape(o.Storefront))
	h.write(w, http.StatusCreated, v)
}

// readOrder decodes strictly. encoding/json would take "Amount" for "amount", the last
// of two amounts, and replace bytes that are no text; then what was checked is not what
// the customer sent.
func readOrder(w http.ResponseWriter, r *http.Request) (o Order, problem *Problem) {
	err := jsonv2.UnmarshalRead(http.MaxBytesReader(w, r.Body, maxBody), &o, jsonv2.RejectUnknownMembers(true))
	var tooLarge *http.MaxBytesError
	var syntax *jsontext.SyntacticError
	var meaning *jsonv2.SemanticError
	switch {
	case err == nil:
		return o, nil
	case errors.As(err, &tooLarge):
		return o, &Problem{Status: http.StatusRequestEntityTooLarge, Code: "too_large", Message: "An order has at most 64 KiB."}
	case errors.Is(err, jsontext.ErrDuplicateName):
		errors.As(err, &syntax)
		return o, invalid(string(syntax.JSONPointer), "is given twice")
	case errors.Is(err, io.EOF):
		return o, &Problem{Status: http.StatusBadRequest, Code: "invalid_json", Message: "Give an order as one JSON object."}
	case errors.As(err, &syntax):
		return o, &Problem{Status: http.StatusBadRequest, Code: "invalid_json", Path: string(syntax.JSONPointer), Message: syntax.Err.Error()}
	case errors.Is(err, jsonv2.ErrUnknownName):
		errors.As(err, &meaning)
		return o, invalid(string(meaning.JSONPointer), "is not a member of an order")
	case errors.As(err, &meaning):
		return o, invalid(string(meaning.JSONPointer), "has the wrong type; amounts are integers of minor units")
	default: // the body did not arrive
		return o, &Problem{Status: http.StatusBadRequest, Code: "body_unreadable", Message: "The body could not be read to its end."}
	}
}

var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// traceOf carries the client's trace to the charge; what is not a trace is left out.
func traceOf(r *http.Request) string {
	trace := r.Header.Get("Traceparent")
	if !traceparent.MatchString(trace) {
		return ""
	}
	return trace
}

func (h handler) find(w http.ResponseWriter, r *http.Request) {
	storefront := r.URL.Query().Get("storefront")
	if !known(storefront) {
		h.refuse(w, r, &Problem{
			Status: http.StatusUnprocessableEntity, Code: "storefront_missing",
			Message: "Each storefront counts its own orders: add ?storefront=.",
		})
		return
	}
	id := r.PathValue("id")
	if !orderIDForm.MatchString(id) {
		id = "" // no order has it, and Postgres need not be asked what it cannot store
	}
	o, charge, found, err := Find(r.Context(), h.db, storefront, id)
	switch {
	case err != nil:
		h.fail(w, r, err)
	case !found:
		h.refuse(w, r, &Problem{Status: http.StatusNotFound, Code: "order_unknown", Message: "This storefront has no such order."})
	default:
		v := view(o, charge)
		v.Order = &o
		h.write(w, http.StatusOK, v)
	}
}

func (h handler) health(w http.ResponseWriter, r *http.Request) {
	if err := Ready(r.Context(), h.db); err != nil {
		h.fail(w, r, err)
		return
	}
	h.write(w, http.StatusOK, map[string]string{"status": "ok"})
}

// Ready returns an error, with what to do, if the database cannot take orders: it does
// not answer, has no ledger, or the shop may not use it.
func Ready(ctx context.Context, db *pgxpool.Pool) error {
	_, err := outbox.Get(ctx, db, Storefronts[0], "none")
	return err
}

func (h handler) allow(method string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", method)
		h.refuse(w, r, &Problem{Status: http.StatusMethodNotAllowed, Code: "method_not_allowed", Message: "Use " + method + "."})
	}
}

// fail answers for an error of Place and its like. One that is not a Problem says
// nothing about the order, so the client is asked to post it again.
func (h handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	var p *Problem
	if errors.As(err, &p) {
		h.refuse(w, r, p)
		return
	}
	h.log.ErrorContext(r.Context(), "request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	w.Header().Set("Retry-After", "1")
	message := "Send the same request again."
	if r.Method == http.MethodPost {
		message = "It is not known whether the order was placed. Send the same order again: it is placed and charged once."
	}
	h.write(w, http.StatusServiceUnavailable, errorView{&Problem{Code: "try_again", Message: message}})
}

type errorView struct {
	Error *Problem `json:"error"`
}

func (h handler) refuse(w http.ResponseWriter, r *http.Request, p *Problem) {
	h.log.InfoContext(r.Context(), "refused", "method", r.Method, "status", p.Status, "code", p.Code, "path", p.Path, "differs", p.Differs)
	h.write(w, p.Status, errorView{p})
}

func (h handler) write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		h.log.Debug("answer not delivered", "error", err)
	}
}
