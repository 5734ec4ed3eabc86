package adapters

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
)

// PostJSON sends a body as JSON to a path of a server, host:port. The caller closes
// the answer's body.
func PostJSON(ctx context.Context, c *http.Client, addr, path string, body any) (*http.Response, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+path, bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return c.Do(req)
}
