// Package wire stands between SGLang's prefill and decode workers.
package wire
