package simulator

import (
	"encoding/json"
	"net/http"
)

// answer is an HTTP answer before it meets the network.
type answer struct {
	status  int
	headers [][2]string
	body    []byte
}

func (a *answer) header(name, value string) {
	a.headers = append(a.headers, [2]string{name, value})
}

func jsonAnswer(status int, v any) answer {
	body, err := json.Marshal(v)
	if err != nil {
		// Everything answered was decoded from JSON before.
		panic(err)
	}
	return answer{status: status, body: append(body, '\n')}
}

func successAnswer(e Effect) answer { return jsonAnswer(http.StatusCreated, e.resource()) }

type errorBody struct {
	Error struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

func errorAnswer(status int, code, message string) answer {
	var b errorBody
	b.Error.Code, b.Error.Message = code, message
	return jsonAnswer(status, b)
}

func keyInUse() answer {
	return errorAnswer(http.StatusConflict, "idempotency_key_in_use", "another request with this key is running")
}

func (f Fault) errorAfterAnswer() answer {
	return errorAnswer(f.status(http.StatusInternalServerError), "internal", "scripted: an error after the effect")
}

func (f Fault) refusal() answer {
	code := f.Code
	if code == "" {
		code = "card_declined"
	}
	return errorAnswer(f.status(http.StatusPaymentRequired), code, "scripted: refused for good")
}
