package certify

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
)

// Keys are Ed25519, in the usual PEM files: PKCS #8 for a private key, PKIX for a
// public one, as openssl writes them.
const (
	pemPrivate = "PRIVATE KEY"
	pemPublic  = "PUBLIC KEY"
	// publicSuffix of the file beside that of the private key.
	publicSuffix = ".pub"
	maxKeyBytes  = 4 << 10
)

// ErrKey is wrapped by the error of a file that holds no key of the kind asked for.
var ErrKey = errors.New("no Ed25519 key")

// KeyID names a public key: the SHA-256 of its PKIX form, in lowercase hex.
func KeyID(pub ed25519.PublicKey) string {
	sum := sha256.Sum256(pkix(pub))
	return hex.EncodeToString(sum[:])
}

func pkix(pub ed25519.PublicKey) []byte {
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		panic("certify: an Ed25519 key always has a PKIX form: " + err.Error())
	}
	return der
}

func publicPEM(pub ed25519.PublicKey) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: pemPublic, Bytes: pkix(pub)})
}

// GenerateKey makes a key pair and writes it to path, for its owner's eyes only,
// and to path.pub. Neither file may exist. It returns the key's id.
func GenerateKey(path string) (string, error) {
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", fmt.Errorf("generate key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(priv)
	if err != nil {
		return "", fmt.Errorf("generate key: %w", err)
	}
	if err := writeNew(path, pem.EncodeToMemory(&pem.Block{Type: pemPrivate, Bytes: der}), 0o600); err != nil {
		return "", err
	}
	if err := writeNew(path+publicSuffix, publicPEM(pub), 0o644); err != nil {
		return "", errors.Join(err, os.Remove(path))
	}
	return KeyID(pub), nil
}

func writeNew(path string, content []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// ReadPrivateKey reads the key that [GenerateKey] wrote.
func ReadPrivateKey(path string) (ed25519.PrivateKey, error) {
	b, err := readBounded(path, maxKeyBytes)
	if err != nil {
		return nil, err
	}
	block, err := decodePEM(b, pemPrivate)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(block)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	priv, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%w: a key of another kind, %T", ErrKey, key)
	}
	return priv, nil
}

func decodePEM(b []byte, kind string) ([]byte, error) {
	block, _ := pem.Decode(b)
	if block == nil || block.Type != kind {
		return nil, fmt.Errorf("%w: no PEM block %q", ErrKey, kind)
	}
	return block.Bytes, nil
}

// parsePublicKey reads a public key in PEM.
func parsePublicKey(b []byte) (ed25519.PublicKey, error) {
	block, err := decodePEM(b, pemPublic)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKIXPublicKey(block)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	pub, ok := key.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("%w: a key of another kind, %T", ErrKey, key)
	}
	return pub, nil
}

// signer signs and verifies for package dsse.
type signer struct {
	priv ed25519.PrivateKey // nil for one that only verifies
	pub  ed25519.PublicKey
}

var errSignature = errors.New("the signature does not fit")

func (s signer) Sign(_ context.Context, data []byte) ([]byte, error) {
	return ed25519.Sign(s.priv, data), nil
}

func (s signer) Verify(_ context.Context, data, sig []byte) error {
	if !ed25519.Verify(s.pub, data, sig) {
		return errSignature
	}
	return nil
}

func (s signer) KeyID() (string, error) { return KeyID(s.pub), nil }

func (s signer) Public() crypto.PublicKey { return s.pub }
