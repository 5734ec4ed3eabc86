package vllm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"conform/adapters"
	"conform/spec"
)

// What is read of one answer, in bytes, at most: of a whole one or a piece of a stream,
// and of all pieces.
const (
	maxAnswer = 16 << 20
	maxStream = 1 << 30
)

var errTooLong = fmt.Errorf("the answer is longer than %d bytes", maxAnswer)

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
	b, err := io.ReadAll(io.LimitReader(r, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the answer ends in its middle: %w", err)
	case len(b) > maxAnswer:
		return nil, errTooLong
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
	lines := bufio.NewScanner(io.LimitReader(r, maxStream))
	lines.Buffer(nil, maxAnswer)
	var last part
	finish := ""
	for lines.Scan() {
		data, ok := bytes.CutPrefix(bytes.TrimSpace(lines.Bytes()), []byte("data:"))
		if !ok {
			continue
		}
		data = bytes.TrimSpace(data)
		if string(data) == "[DONE]" {
			conclude(a, last, finish, wanted)
			return nil
		}
		last = part{}
		if err := json.Unmarshal(data, &last); err != nil {
			return fmt.Errorf("a piece of the answer is no JSON: %w", err)
		}
		if len(last.Choices) > 0 {
			a.Tokens = append(a.Tokens, last.Choices[0].TokenIDs...)
			if last.Choices[0].Finish != "" {
				finish = last.Choices[0].Finish
			}
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return errTooLong
	}
	return errors.Join(errors.New("the answer ends without its last piece"), lines.Err())
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
