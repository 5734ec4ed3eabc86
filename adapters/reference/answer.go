package reference

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// clientAnswer is what one client is told. Two legs may speak; the first end stands.
type clientAnswer struct {
	mu       sync.Mutex
	rw       http.ResponseWriter
	status   int // as told, 0 before
	begun    bool
	complete bool
	closed   bool // the handler is about to return, after which rw is not ours
}

// line passes one line of decode's answer on.
func (c *clientAnswer) line(status int, a legAnswer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.complete || c.closed {
		return
	}
	if !c.begun {
		c.begin(status)
	}
	if a.Status != 0 {
		c.status = a.Status
	}
	c.complete = a.Done || a.Error != ""
	writeLine(c.rw, a)
}

// fail ends the answer with an error: as its status if nothing was sent yet, else
// as the last line of the stream.
func (c *clientAnswer) fail(a legAnswer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.complete || c.closed {
		return
	}
	if !c.begun {
		c.begin(a.Status)
	}
	c.status, c.complete, a.Done = a.Status, true, true
	writeLine(c.rw, a)
}

// close is called before the handler returns: a leg that speaks later is not heard.
func (c *clientAnswer) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

// told says the status that the client has, 0 before any, and whether its answer has ended.
func (c *clientAnswer) told() (status int, complete bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status, c.complete
}

func (c *clientAnswer) begin(status int) {
	c.begun, c.status = true, status
	c.rw.Header().Set("Content-Type", "application/x-ndjson")
	c.rw.WriteHeader(status)
}

func writeLine(rw http.ResponseWriter, a legAnswer) {
	_ = json.NewEncoder(rw).Encode(a) // the client may be gone
	if f, ok := rw.(http.Flusher); ok {
		f.Flush()
	}
}

// spooled keeps what one leg of several would have told the client.
type spooled struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header, WriteHeader and Write make it an [http.ResponseWriter].
func (s *spooled) Header() http.Header         { return s.header }
func (s *spooled) WriteHeader(status int)      { s.status = status }
func (s *spooled) Write(b []byte) (int, error) { return s.body.Write(b) }

// answer joins its lines: all tokens, and how it ended.
func (s *spooled) answer() legAnswer {
	whole := legAnswer{Status: http.StatusBadGateway, Error: "a sample was not answered"}
	lines := json.NewDecoder(&s.body)
	var tokens []int32
	for {
		var a legAnswer
		if lines.Decode(&a) != nil {
			return whole
		}
		tokens = append(tokens, a.Tokens...)
		if a.Done || a.Error != "" {
			a.Tokens, a.Status = tokens, cmp.Or(a.Status, s.status)
			return a
		}
	}
}

func getJSON(ctx context.Context, client *http.Client, url string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return json.NewDecoder(io.LimitReader(resp.Body, wireMaxBytes)).Decode(v)
}
