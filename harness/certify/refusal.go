package certify

import "fmt"

// Code says for a program why a certificate is refused.
type Code string

// The codes.
const (
	CodeMalformed Code = "malformed" // no certificate, or not in its one form
	CodeBounds    Code = "bounds"    // larger than the limits allow
	CodeSignature Code = "signature" // a signature that does not fit what it signs
	CodeTrust     Code = "trust"     // too few signatures of keys that are trusted
	CodeStatement Code = "statement" // what is signed is another list of members
	CodeDigest    Code = "digest"    // a member is not the one that was signed
	CodeMember    Code = "member"    // a member is missing, or one too many
	CodeContent   Code = "content"   // a member does not follow from the traces
	CodeProfile   Code = "profile"   // the profile or quarter is not the verifier's
	CodeVersion   Code = "version"   // made by another specification or tool
	CodeShortfall Code = "shortfall" // it holds less than its profile asks for
	CodeExpired   Code = "expired"   // not valid at the time that was asked for
)

// Refusal says why a certificate is not accepted.
type Refusal struct {
	Code   Code   `json:"code"`
	Member string `json:"member,omitempty"` // of the file; "" where it is about all of it
	Text   string `json:"text"`
}

func (r *Refusal) Error() string {
	if r.Member == "" {
		return r.Text
	}
	return r.Member + ": " + r.Text
}

func refuse(code Code, member, format string, args ...any) *Refusal {
	return &Refusal{code, member, fmt.Sprintf(format, args...)}
}
