package certify

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Trust says whose signatures count, and how many of them it takes.
type Trust struct {
	Threshold int // at least 1
	Keys      []TrustedKey
}

// TrustedKey is one key that a verifier trusts.
type TrustedKey struct {
	Name string // of whoever holds it
	Key  ed25519.PublicKey
	// From and Until bound the days on which it may sign; zero for no bound.
	From, Until time.Time
}

const maxTrustBytes = 1 << 20

// ErrTrust is wrapped by the error of a file that is neither a public key nor a list
// of roots.
var ErrTrust = errors.New("neither a public key nor a list of roots")

// ReadTrust reads files of keys: a public key in PEM, or a list of roots,
//
//	threshold: 2
//	keys:
//	  - name: Example Corp
//	    from: 2026-01-01
//	    until: 2026-12-31
//	    key: |
//	      -----BEGIN PUBLIC KEY-----
//	      ...
//
// Several files join; the highest threshold of theirs holds.
func ReadTrust(paths ...string) (Trust, error) {
	t := Trust{Threshold: 1}
	for _, path := range paths {
		b, err := readBounded(path, maxTrustBytes)
		if err != nil {
			return Trust{}, err
		}
		if err := t.add(path, b); err != nil {
			return Trust{}, fmt.Errorf("%s: %w", path, err)
		}
	}
	if t.Threshold > len(t.Keys) {
		return Trust{}, fmt.Errorf("%w: a threshold of %d with %d keys", ErrTrust, t.Threshold, len(t.Keys))
	}
	return t, nil
}

func (t *Trust) add(path string, b []byte) error {
	if pub, err := parsePublicKey(b); err == nil {
		return t.addKey(TrustedKey{Name: strings.TrimSuffix(base(path), publicSuffix), Key: pub})
	}
	var file struct {
		Threshold int
		Keys      []struct{ Name, From, Until, Key string }
	}
	if err := decodeYAML(b, &file); err != nil {
		return fmt.Errorf("%w: %w", ErrTrust, err)
	}
	if file.Threshold < 0 || len(file.Keys) == 0 {
		return fmt.Errorf("%w: it has no keys, or a threshold below 1", ErrTrust)
	}
	t.Threshold = max(t.Threshold, file.Threshold)
	for _, k := range file.Keys {
		pub, err := parsePublicKey([]byte(k.Key))
		if err != nil {
			return fmt.Errorf("%w: key %q: %w", ErrTrust, k.Name, err)
		}
		from, err1 := day(k.From)
		until, err2 := day(k.Until)
		if err := errors.Join(err1, err2); err != nil {
			return fmt.Errorf("%w: key %q: %w", ErrTrust, k.Name, err)
		}
		if !until.IsZero() {
			until = until.AddDate(0, 0, 1)
		}
		if err := t.addKey(TrustedKey{k.Name, pub, from, until}); err != nil {
			return err
		}
	}
	return nil
}

// addKey takes a key once: two names for one key are not two signers.
func (t *Trust) addKey(k TrustedKey) error {
	for _, have := range t.Keys {
		if have.Key.Equal(k.Key) {
			return fmt.Errorf("%w: %q and %q are one key", ErrTrust, have.Name, k.Name)
		}
	}
	t.Keys = append(t.Keys, k)
	return nil
}

// holds reports whether the key may have signed at that time.
func (k TrustedKey) holds(at time.Time) bool {
	return !at.Before(k.From) && (k.Until.IsZero() || at.Before(k.Until))
}

func day(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	return time.Parse(time.DateOnly, s)
}

// decodeYAML reads one document without unknown fields.
func decodeYAML(b []byte, v any) error {
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(v); err != nil {
		return err
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return errors.New("more than one document")
	}
	return nil
}

// readBounded reads a whole file that may not be larger.
func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s: larger than %d bytes", path, limit)
	}
	return b, nil
}

func base(path string) string { return path[strings.LastIndexAny(path, `/\`)+1:] }
