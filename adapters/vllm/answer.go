package vllm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"conform/adapters"
	"conform/adapters/engines/fleet"
	"conform/spec"
)

// part is an answer, or one piece of a stream of them.
type part struct {
	Choices []struct {
		TokenIDs []int32 `json:"token_ids"`
		Finish   string  `json:"finish_reason"`
	} `json:"choices"`
	KVParameters json.RawMessage `json:"kv_transfer_params"`
	Error        *struct {
		Code json.Number `json:"code"`
	} `json:"error"`
}

// readWhole reads an answer that comes in one piece, and gives the parameters for the
// other stage that are in it.
func readWhole(r io.Reader, a *adapters.Answer, wanted int) (json.RawMessage, error) {
	b, err := fleet.ReadAnswer(r)
	if err != nil {
		return nil, err
	}
	var p part
	if err := json.Unmarshal(b, &p); err != nil {
		return nil, fmt.Errorf("the answer is no JSON: %w", err)
	}
	finish := ""
	if len(p.Choices) > 0 {
		a.Tokens, finish = p.Choices[0].TokenIDs, p.Choices[0].Finish
	}
	conclude(a, p, finish, wanted)
	return p.KVParameters, nil
}

// readStream reads server-sent events; each holds the tokens that are new.
func readStream(r io.Reader, a *adapters.Answer, wanted int) error {
	var last part
	finish := ""
	err := fleet.ReadPieces(r, func(p part) {
		last = p
		if len(p.Choices) > 0 {
			a.Tokens = append(a.Tokens, p.Choices[0].TokenIDs...)
			finish = cmp.Or(p.Choices[0].Finish, finish)
		}
	})
	if err == nil {
		conclude(a, last, finish, wanted)
	}
	return err
}

// conclude is what a client takes a whole answer for.
func conclude(a *adapters.Answer, p part, finish string, wanted int) {
	switch {
	case p.Error != nil:
		code, _ := p.Error.Code.Int64()
		a.Status = max(int(code), http.StatusInternalServerError)
		if code == http.StatusBadRequest {
			a.Status, a.Outcome = http.StatusBadRequest, spec.OutcomeRejected
		}
	case finish == "abort":
		a.Outcome = spec.OutcomeCancelled
	case finish == "length" && len(a.Tokens) < wanted:
		a.Outcome = spec.OutcomeLength
	case finish == "length" || finish == "stop":
		a.Outcome = spec.OutcomeOK
	}
}
