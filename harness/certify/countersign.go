package certify

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
)

// Countersign checks a certificate as [Verify] does and, if it holds, writes it to out
// with the signatures of further keys: the bytes that [Certify] would have written with
// all of them. Vendor and programme so sign one certificate without sharing keys.
func Countersign(ctx context.Context, path string, c Check, keys []ed25519.PrivateKey, out string) (*Report, error) {
	rep, err := Verify(ctx, path, c)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	err = signFront(ctx, bufio.NewReaderSize(f, 1<<20), keys, out)
	return rep, errors.Join(err, f.Close())
}

// signFront reads the front of a certificate, adds signatures, and copies the rest.
func signFront(ctx context.Context, in io.Reader, keys []ed25519.PrivateKey, out string) error {
	a := &archive{in, DefaultLimits().TotalBytes}
	var front []member
	for {
		name, text, err := a.text(maxListBytes)
		if err != nil {
			return err
		}
		if strings.HasSuffix(name, ".dsse.json") {
			if text, err = addSignatures(ctx, name, text, keys); err != nil {
				return err
			}
		}
		front = append(front, textMember(name, text))
		if name == testResultMember {
			break
		}
	}
	for _, k := range keys {
		pub := k.Public().(ed25519.PublicKey)
		front = append(front, textMember(keysFolder+KeyID(pub)+publicSuffix, publicPEM(pub)))
	}
	// The list, the keys by their ids, the statements: that is the order of the names,
	// too.
	slices.SortFunc(front, func(a, b member) int { return strings.Compare(a.Name, b.Name) })
	front = slices.CompactFunc(front, func(a, b member) bool { return a.Name == b.Name })
	if len(front) > maxSigners+3 {
		return fmt.Errorf("%w: more than %d signers", ErrKey, maxSigners)
	}
	return writeFile(out, func(w io.Writer) error {
		if err := writeMembers(w, front); err != nil {
			return err
		}
		_, err := io.Copy(w, in)
		return err
	})
}

// addSignatures signs the payload of an envelope with the keys that have not.
func addSignatures(ctx context.Context, name string, text []byte, keys []ed25519.PrivateKey) ([]byte, error) {
	var env dsse.Envelope
	if err := json.Unmarshal(text, &env); err != nil {
		return nil, refuse(CodeMalformed, name, "no envelope: %v", err)
	}
	payload, err := env.DecodeB64Payload()
	if err != nil {
		return nil, refuse(CodeMalformed, name, "no envelope: %v", err)
	}
	for _, k := range keys {
		s := signer{k, k.Public().(ed25519.PublicKey)}
		id := KeyID(s.pub)
		if slices.ContainsFunc(env.Signatures, func(s dsse.Signature) bool { return s.KeyID == id }) {
			continue
		}
		sig, err := s.Sign(ctx, dsse.PAE(env.PayloadType, payload))
		if err != nil {
			return nil, err
		}
		env.Signatures = append(env.Signatures, dsse.Signature{KeyID: id, Sig: base64.StdEncoding.EncodeToString(sig)})
	}
	slices.SortFunc(env.Signatures, func(a, b dsse.Signature) int { return strings.Compare(a.KeyID, b.KeyID) })
	return line(env), nil
}
